r"""Maximisation of acquisition functions over a robust domain.

The replicates of an experiment are the members of one batched model. Their search is
the same as for single models: with the same seeds it takes the same steps, for all
members at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.exceptions.errors import (
    BotorchTensorDimensionError,
    InputDataError,
    UnsupportedError,
)
from botorch.optim.initializers import is_nonnegative
from torch import Tensor

from botorch_res.checks import check_number, check_seed, check_type, try_out
from botorch_res.domain import RobustDomain
from botorch_res.domain.arguments import Constraints
from botorch_res.optim.acquisition.multistart import maximize, starts_per_restart
from botorch_res.optim.acquisition.starts import sampled_optima, select_starts


def optimize_robust_acqf(
    acq_function: AcquisitionFunction,
    domain: RobustDomain,
    q: int = 1,
    num_restarts: int = 8,
    raw_samples: int = 256,
    num_rounds: int = 10,
    batch_limit: int = 4096,
    seed: int | None = None,
    fixed_features: Mapping[int, float] | None = None,
    inequality_constraints: Constraints | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Maximise an acquisition function over a robust domain.

    A quasi-Newton ascent runs from the best of many initial points, all restarts in one
    batch, in coordinates that make the box of the free columns a unit cube. If there
    are listed columns, the search compares the rows of their values for all restarts
    and moves in the free columns, in turns. If all columns are listed, it evaluates all
    points.

    Args:
        acq_function: Any BoTorch acquisition function of ``batch_shape x 1 x d`` points
            in the user's units. If it has a method ``at_one_setting``, as
            ``qRobustEntropySearch`` has, this compares the rows of theta.
        domain: The domain to search.
        q: The number of candidates. They are found one after another, each with the
            previous ones as pending points.
        num_restarts: The number of starting points of the local search. If listed and
            free columns are mixed in ``x``, or if there are constraints, the search
            begins with up to eight times as many, and continues with the best ones.
        raw_samples: The number of points from which these are selected.
        num_rounds: The number of rounds of the local search.
        batch_limit: The largest number of points that are evaluated at once, except in
            the ascent.
        seed: The seed of the initial points.
        fixed_features: Values of columns to keep, ``{column: value}``.
        inequality_constraints: Linear constraints on controllable columns, a list of
            ``(indices, coefficients, rhs)``; see ``RobustDomain.restricted``.

    Returns:
        The ``q x d`` candidates and their acquisition values. For ``q = 1`` this is a
        scalar. Otherwise there are ``q`` values, each given the candidates before it.

    Example:
        >>> acqf = qRobustEntropySearch(model, domain, maximize=False, seed=0)
        >>> candidates, value = optimize_robust_acqf(acqf, domain, seed=0)
    """
    check_number("q", q, 1)
    check_seed(seed)
    check_type("acq_function", acq_function, AcquisitionFunction)
    check_type("domain", domain, RobustDomain)
    domain = domain.restricted(fixed_features, inequality_constraints)
    find_one = _make_search(
        acq_function,
        domain,
        [seed],
        num_restarts,
        raw_samples,
        num_rounds,
        max_choices=batch_limit,
        batch_limit=batch_limit,
        is_batch=False,
    )
    if q == 1:
        candidate, value = find_one()
        return candidate, value.squeeze(0)
    return _find_in_turn(find_one, acq_function, q)


def optimize_replicates(
    acq_function: AcquisitionFunction,
    domain: RobustDomain,
    seeds: Sequence[int],
    num_restarts: int = 8,
    raw_samples: int = 256,
    num_rounds: int = 10,
    max_choices: int = 4096,
    batch_limit: int = 2**17,
) -> tuple[Tensor, Tensor]:
    r"""Find one candidate for every model of a batch.

    Args:
        acq_function: An acquisition function of a model of batch shape ``S``, which
            maps ``n x S x 1 x d`` points in the user's units to ``n x S`` values.
        domain: The domain to search, the same for all members.
        seeds: ``S`` seeds of the members' initial points.
        num_restarts: The number of starting points of a member's local search.
        raw_samples: The number of points from which these are selected.
        num_rounds: The number of rounds of the local search.
        max_choices: About how many points a member compares at most, of a starting
            point and a pair of rows of listed values of ``x`` and of ``theta``.
            (``optimize_robust_acqf`` uses its ``batch_limit`` for this.)
        batch_limit: The largest number of points that are evaluated at once, over all
            members, except in the ascent.

    Returns:
        The ``S x d`` candidates, and their ``S`` acquisition values.

    Example:
        >>> acqf = qRobustEntropySearch(model, domain, maximize=False, seed=seeds)
        >>> candidates, values = optimize_replicates(acqf, domain, seeds)
    """
    if not isinstance(seeds, Sequence) or len(seeds) < 1:
        raise InputDataError(
            f"Expected `seeds` to be a list of one seed for each model, got {seeds!r}."
        )
    for seed in seeds:
        check_seed(seed)
    find = _make_search(
        acq_function,
        domain,
        seeds,
        num_restarts,
        raw_samples,
        num_rounds,
        max_choices,
        batch_limit,
        is_batch=True,
    )
    return find()


def _make_search(
    acq_function: AcquisitionFunction,
    domain: RobustDomain,
    seeds: Sequence[int | None],
    num_restarts: int,
    raw_samples: int,
    num_rounds: int,
    max_choices: int,
    batch_limit: int,
    is_batch: bool,
) -> Callable[[], tuple[Tensor, Tensor]]:
    """Check the arguments, and make a search for one candidate of every member."""
    check_number("num_restarts", num_restarts, 1)
    check_number("raw_samples", raw_samples, num_restarts)
    check_number("num_rounds", num_rounds, 1)
    check_number("batch_limit", batch_limit, 1)
    check_number("max_choices", max_choices, 1)
    check_type("acq_function", acq_function, AcquisitionFunction)
    check_type("domain", domain, RobustDomain)
    domain = domain.evaluations
    _check_output(acq_function, domain, [len(seeds)] if is_batch else [])
    rows = max(1, batch_limit // len(seeds))
    num_starts = min(raw_samples, num_restarts * starts_per_restart(domain))

    at_one_setting: Callable[[Tensor], Tensor] | None
    at_one_setting = getattr(acq_function, "at_one_setting", None)

    def function(points: Tensor) -> Tensor:
        values: Tensor
        if at_one_setting is not None and points.shape[1] > 1:
            groups = points.transpose(1, 2)
            values = at_one_setting(groups if is_batch else groups.squeeze(1))
            values = values.view(groups.shape[:-1]).transpose(1, 2)
        else:
            # Without a batch, n x 1 x d points are BoTorch's n batches of one point.
            alone = points.flatten(0, 1)
            values = acq_function(alone.unsqueeze(-2) if is_batch else alone)
        return values.reshape(points.shape[:-1])

    def make_starts() -> Tensor:
        optima: Tensor | None = getattr(acq_function, "robust_optimizers", None)
        if optima is not None and not is_batch:
            optima = sampled_optima(acq_function)
        if optima is not None:  # of a model without a batch for all members
            optima = optima.movedim(0, -2).expand(len(seeds), -1, -1)
        return select_starts(
            function,
            domain,
            optima,
            seeds,
            num_starts,
            raw_samples,
            rows,
            is_nonnegative(acq_function),
        )

    def find() -> tuple[Tensor, Tensor]:
        return maximize(
            function,
            domain,
            num_members=len(seeds),
            make_starts=make_starts,
            num_restarts=num_restarts,
            num_rounds=num_rounds,
            max_choices=max_choices,
            rows=rows,
            name=type(acq_function).__name__,
        )

    return find


def _check_output(
    acq_function: AcquisitionFunction, domain: RobustDomain, members: list[int]
) -> None:
    """Raise an error unless an acquisition function can be evaluated on a domain."""
    point = domain.sample(1, seed=0).expand(1, *members, 1, -1)
    value = try_out("acq_function", acq_function, point)
    if value.shape != (1, *members):
        raise BotorchTensorDimensionError(
            "Expected `acq_function` to have one value at each point"
            f"{' of each seed' if members else ''}, but it maps shape "
            f"{tuple(point.shape)} to {tuple(value.shape)}."
        )


def _find_in_turn(
    find_one: Callable[[], tuple[Tensor, Tensor]],
    acq_function: AcquisitionFunction,
    q: int,
) -> tuple[Tensor, Tensor]:
    """Find ``q x d`` candidates one after another, and their values."""
    if not hasattr(acq_function, "X_pending"):
        raise UnsupportedError(
            f"Expected `q` = 1, as {type(acq_function).__name__} does not account for "
            f"pending points, got {q}."
        )
    before = acq_function.X_pending
    known = [] if before is None else [before]
    found: list[Tensor] = []
    values: list[Tensor] = []
    try:
        for i in range(q):
            if i > 0:
                acq_function.set_X_pending(torch.cat([*known, *found]))
            candidate, value = find_one()
            found.append(candidate)
            values.append(value)
    finally:
        acq_function.set_X_pending(before)
    return torch.cat(found), torch.cat(values)
