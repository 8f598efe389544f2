r"""Maximisation of acquisition functions of a batch of models, a candidate for each.

The replicates of an experiment are the members of one batched model. Their acquisition
function maps ``n x S x 1 x d`` points, in which every member has ``n`` points of its
own, to ``n x S`` values. The search is that of ``optimize_robust_acqf`` for all members
at once: with the same seeds it takes the same steps.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.exceptions.errors import InputDataError
from botorch.optim.initializers import initialize_q_batch
from torch import Tensor

from botorch_res.domain import RobustDomain
from botorch_res.optim.arguments import check_acquisition, check_counts
from botorch_res.optim.multistart import (
    BatchedFunction,
    evaluate,
    maximize,
    put_optima_first,
)
from botorch_res.seeding import check_seed, seeded


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
        max_choices: The largest number of pairs of a starting point and a choice of a
            finite part that a member compares: ``batch_limit`` of
            ``optimize_robust_acqf``.
        batch_limit: The largest number of points that are evaluated at once, over all
            members.

    Returns:
        The ``S x d`` candidates, and their ``S`` acquisition values.

    Example:
        >>> acqf = qRobustEntropySearch(model, domain, maximize=False, seed=seeds)
        >>> candidates, values = optimize_replicates(acqf, domain, seeds)
    """
    check_counts(
        num_restarts=(num_restarts, 1),
        raw_samples=(raw_samples, num_restarts),
        num_rounds=(num_rounds, 1),
        max_choices=(max_choices, 1),
        batch_limit=(batch_limit, 1),
    )
    if not isinstance(seeds, Sequence) or len(seeds) < 1:
        raise InputDataError(
            f"Expected `seeds` to be a list of one seed for each model, got {seeds!r}."
        )
    for seed in seeds:
        check_seed(seed)
    check_acquisition(acq_function, domain, len(seeds))
    rows = max(1, batch_limit // len(seeds))

    def function(points: Tensor) -> Tensor:
        values: Tensor = acq_function(points.unsqueeze(-2))
        return values

    return maximize(
        function,
        domain,
        num_members=len(seeds),
        make_starts=lambda: _initial_conditions(
            function,
            domain,
            getattr(acq_function, "robust_optimizers", None),
            seeds,
            num_restarts,
            raw_samples,
            rows,
        ),
        num_rounds=num_rounds,
        max_choices=max_choices,
        rows=rows,
        name=type(acq_function).__name__,
    )


def _initial_conditions(
    function: BatchedFunction,
    domain: RobustDomain,
    optima: Tensor | None,
    seeds: Sequence[int],
    num_restarts: int,
    raw_samples: int,
    rows: int,
) -> Tensor:
    """Select every member's starting points, as the search for a single model does.

    Args:
        function: The acquisition functions.
        domain: The domain.
        optima: The ``C x S x d`` sampled optima, if there are any.
        seeds: ``S`` seeds.
        num_restarts: The number of starting points.
        raw_samples: The number of points from which these are selected.
        rows: The largest number of points of each member to evaluate at once.

    Returns:
        ``num_restarts x S x d`` starting points.
    """
    # Generators know no batches: random numbers are drawn member by member, here and
    # in the selection, and all arithmetic is done for all of them.
    raw = torch.stack([domain.sample(raw_samples, seed) for seed in seeds])
    optima = None if optima is None else optima.movedim(0, 1)
    raw = put_optima_first(raw, optima, domain)
    values = evaluate(function, raw.movedim(0, 1), rows)
    selected = []
    for points, own, seed in zip(raw, values.mT, seeds, strict=True):
        with seeded(seed):
            starts, _ = initialize_q_batch(points.unsqueeze(-2), own, num_restarts)
        selected.append(starts.squeeze(-2))
    return torch.stack(selected, dim=1)
