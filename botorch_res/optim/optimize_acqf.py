r"""Maximisation of acquisition functions over the four kinds of robust domain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.exceptions.errors import InputDataError, UnsupportedError
from botorch.optim.initializers import gen_batch_initial_conditions
from torch import Tensor

from botorch_res.domain import RobustDomain
from botorch_res.optim.arguments import (
    check_acquisition,
    check_counts,
    check_domain,
)
from botorch_res.optim.multistart import maximize, put_optima_first
from botorch_res.seeding import check_seed, seeded


def optimize_robust_acqf(
    acq_function: AcquisitionFunction,
    domain: RobustDomain,
    q: int = 1,
    num_restarts: int = 8,
    raw_samples: int = 256,
    num_rounds: int = 10,
    batch_limit: int = 4096,
    seed: int | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Maximise an acquisition function over a robust domain.

    A box is searched by a quasi-Newton ascent from the best of many initial points, all
    restarts in one batch, in coordinates that make the box a unit cube. Where one part
    of the domain is a finite set, comparing all of its choices, for all restarts at
    once, and moving the other part take turns. Where both are finite, all points are
    evaluated.

    Args:
        acq_function: Any BoTorch acquisition function of ``batch_shape x 1 x d`` points
            in the user's units.
        domain: The domain to search.
        q: The number of candidates. They are found one after the other, each with its
            predecessors as pending points.
        num_restarts: The number of starting points of the local search.
        raw_samples: The number of points from which these are selected.
        num_rounds: The number of rounds of the local search.
        batch_limit: The largest number of points that are evaluated at once.
        seed: The seed of the initial points.

    Returns:
        The ``q x d`` candidates, and their acquisition values, a scalar for ``q = 1``,
        otherwise ``q`` values, each given the candidates before it.

    Example:
        >>> acqf = qRobustEntropySearch(model, domain, maximize=False, seed=0)
        >>> candidates, value = optimize_robust_acqf(acqf, domain, seed=0)
    """
    check_counts(
        q=(q, 1),
        num_restarts=(num_restarts, 1),
        raw_samples=(raw_samples, num_restarts),
        num_rounds=(num_rounds, 1),
        batch_limit=(batch_limit, 1),
    )
    check_seed(seed)
    check_acquisition(acq_function, domain)

    def find_one() -> tuple[Tensor, Tensor]:
        return maximize(
            # One member: n x 1 x d points are BoTorch's n batches of one point, too.
            lambda points: acq_function(points).unsqueeze(-1),
            domain,
            num_members=1,
            make_starts=lambda: gen_robust_initial_conditions(
                acq_function,
                domain.bounds,
                q=1,
                num_restarts=num_restarts,
                raw_samples=raw_samples,
                options={"init_batch_limit": batch_limit, "seed": seed},
                domain=domain,
            ),
            num_rounds=num_rounds,
            max_choices=batch_limit,
            rows=batch_limit,
            name=type(acq_function).__name__,
        )

    if q == 1:
        candidate, value = find_one()
        return candidate, value.squeeze(0)
    return _find_in_turn(find_one, acq_function, q)


def gen_robust_initial_conditions(
    acq_function: AcquisitionFunction,
    bounds: Tensor,
    q: int,
    num_restarts: int,
    raw_samples: int,
    fixed_features: dict[int, float] | None = None,
    options: dict[str, Any] | None = None,
    inequality_constraints: list[tuple[Tensor, Tensor, float]] | None = None,
    equality_constraints: list[tuple[Tensor, Tensor, float]] | None = None,
    domain: RobustDomain | None = None,
) -> Tensor:
    r"""Select starting points from a Sobol sequence and the sampled robust optima.

    Usable as the ``ic_generator`` of BoTorch's ``optimize_acqf``. Three quarters of the
    raw samples fill the domain; the rest are the robust optima of the acquisition
    function's samples, if it has them, and perturbations of these.

    Args:
        acq_function: The acquisition function; ``acq_function.robust_optimizers`` are
            the ``... x d`` sampled optima.
        bounds: The ``2 x d`` bounds.
        q: The number of candidates per starting point.
        num_restarts: The number of starting points.
        raw_samples: The number of points from which these are selected.
        fixed_features: As in BoTorch.
        options: As in BoTorch, for example ``{"seed": 0, "init_batch_limit": 512}``.
        inequality_constraints: Not supported, must be ``None``.
        equality_constraints: Not supported, must be ``None``.
        domain: The domain; by default that of the acquisition function.

    Returns:
        The ``num_restarts x q x d`` starting points.

    Example:
        >>> optimize_acqf(
        ...     acqf, bounds, q=1, num_restarts=8, raw_samples=256,
        ...     ic_generator=gen_robust_initial_conditions,
        ... )
    """
    if inequality_constraints or equality_constraints:
        raise InputDataError(
            "Expected no `inequality_constraints` and no `equality_constraints`: a "
            "robust domain is a product of boxes and finite sets."
        )
    space: Any = getattr(acq_function, "domain", None) if domain is None else domain
    check_domain(space)
    if bounds.shape != space.bounds.shape or not bounds.allclose(
        space.bounds.to(bounds)
    ):
        raise InputDataError(
            f"Expected the `bounds` of the domain, {space.bounds.tolist()}, got "
            f"{bounds.tolist()}."
        )
    optima = getattr(acq_function, "robust_optimizers", None)
    optima = None if optima is None else optima.movedim(0, -2).flatten(0, -2)

    def generate(n: int, q: int, seed: int | None) -> Tensor:
        raw = put_optima_first(space.sample(n * q, seed), optima, space)
        return raw.view(n, q, -1)

    # BoTorch selects with the global generator, which is put back afterwards.
    with seeded((options or {}).get("seed")):
        return gen_batch_initial_conditions(
            acq_function,
            bounds,
            q=q,
            num_restarts=num_restarts,
            raw_samples=raw_samples,
            fixed_features=fixed_features,
            options=options,
            generator=generate,
        )


def _find_in_turn(
    find_one: Callable[[], tuple[Tensor, Tensor]],
    acq_function: AcquisitionFunction,
    q: int,
) -> tuple[Tensor, Tensor]:
    """Find candidates one after the other.

    Args:
        find_one: Gives a ``1 x d`` candidate and its value.
        acq_function: The acquisition function; its pending points are put back.
        q: The number of candidates.

    Returns:
        The ``q x d`` candidates and ``q`` values.
    """
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
