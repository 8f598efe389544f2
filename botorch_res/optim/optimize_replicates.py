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
from botorch.utils.sampling import manual_seed
from botorch.utils.transforms import normalize, unnormalize
from torch import Tensor

from botorch_res.domain import RobustDomain
from botorch_res.optim.ascent import advance, begin
from botorch_res.optim.optimize_acqf import (
    NUM_EXCHANGES,
    NUM_HEATS,
    _near_optima,
    _nearest,
)


def optimize_replicates(
    acq_function: AcquisitionFunction,
    domain: RobustDomain,
    seeds: Sequence[int],
    num_restarts: int = 8,
    raw_samples: int = 256,
    num_rounds: int = 7,
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
    for name, value, least in (
        ("num_restarts", num_restarts, 1),
        ("raw_samples", raw_samples, num_restarts),
        ("num_rounds", num_rounds, 1),
        ("max_choices", max_choices, 1),
        ("batch_limit", batch_limit, 1),
    ):
        if value < least:
            raise InputDataError(f"Expected `{name}` of at least {least}, got {value}.")
    rows = max(1, batch_limit // len(seeds))
    if domain.x_is_finite and domain.theta_is_finite:
        pairs = domain.all_pairs().flatten(0, 1).unsqueeze(-2)
        candidates = pairs.expand(-1, len(seeds), -1)
        values = _evaluate(acq_function, candidates, rows)
    else:
        starts = _initial_conditions(
            acq_function, domain, seeds, num_restarts, raw_samples, rows
        )
        count = max(1, max_choices // num_restarts)
        candidates, values = _local_search(
            acq_function, domain, starts, num_rounds, count, rows
        )
    if values.isnan().any():
        raise RuntimeError(
            f"{int(values.isnan().sum())} of {values.numel()} values of "
            f"{type(acq_function).__name__} are NaN."
        )
    values, best = values.max(dim=0, keepdim=True)
    candidates = candidates.take_along_dim(best.unsqueeze(-1), dim=0)
    return candidates.squeeze(0), values.squeeze(0)


def _initial_conditions(
    acq_function: AcquisitionFunction,
    domain: RobustDomain,
    seeds: Sequence[int],
    num_restarts: int,
    raw_samples: int,
    rows: int,
) -> Tensor:
    """Select every member's starting points, as the search for a single model does.

    Args:
        acq_function: The acquisition function; ``acq_function.robust_optimizers`` are
            the ``S x C x d`` sampled optima, if it has them.
        domain: The domain.
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
    optima = getattr(acq_function, "robust_optimizers", None)
    if optima is not None:
        near = _near_optima(optima, domain, raw[..., : raw_samples // 4, :])
        raw = torch.cat([near, raw[..., near.shape[-2] :, :]], dim=-2)
    values = _evaluate(acq_function, raw.movedim(0, 1), rows)
    selected = []
    for points, own, seed in zip(raw, values.mT, seeds, strict=True):
        with manual_seed(seed):
            starts, _ = initialize_q_batch(points.unsqueeze(-2), own, num_restarts)
        selected.append(starts.squeeze(-2))
    return torch.stack(selected, dim=1)


def _local_search(
    acq_function: AcquisitionFunction,
    domain: RobustDomain,
    starts: Tensor,
    num_rounds: int,
    count: int,
    rows: int,
) -> tuple[Tensor, Tensor]:
    """Climb from all starts of all members, and choose anew in a finite part.

    Args:
        acq_function: The acquisition function.
        domain: A domain with at least one continuous part.
        starts: ``num_restarts x S x d`` starting points.
        num_rounds: The number of rounds of the ascent.
        count: The number of choices of a finite part to compare.
        rows: The largest number of points of each member to evaluate at once.

    Returns:
        The ``num_restarts x S x d`` candidates and their values.
    """
    if not (domain.x_is_finite or domain.theta_is_finite):
        return _climb(acq_function, domain, starts, (), num_rounds, NUM_HEATS)
    fixed = tuple(domain.controllable if domain.x_is_finite else domain.uncontrollable)
    candidates = starts
    for _ in range(NUM_EXCHANGES):
        chosen = _best_choice(acq_function, domain, candidates, count, rows)
        candidates, values = _climb(
            acq_function, domain, chosen, fixed, (num_rounds + 1) // NUM_EXCHANGES, 1
        )
    return candidates, values


def _climb(
    acq_function: AcquisitionFunction,
    domain: RobustDomain,
    starts: Tensor,
    fixed: tuple[int, ...],
    num_rounds: int,
    num_heats: int,
) -> tuple[Tensor, Tensor]:
    """Climb from all starts of all members, with some columns held.

    Args:
        acq_function: The acquisition function.
        domain: The domain.
        starts: ``num_restarts x S x d`` starting points.
        fixed: The columns that keep the values of their start.
        num_rounds: The number of rounds.
        num_heats: The rounds are so many heats. Only the better half of a member's
            starts goes on to the next.

    Returns:
        The ``m x S x d`` candidates of the last heat and their values.
    """

    def in_unit_cube(u: Tensor) -> Tensor:
        points = unnormalize(u.flatten(0, 1), domain.bounds)
        flat: Tensor = acq_function(points.unsqueeze(-2))
        values: Tensor = flat.unflatten(0, u.shape[:2])
        return values

    movable = torch.ones_like(domain.bounds[0], dtype=torch.bool)
    movable[list(fixed)] = False
    state = begin(in_unit_cube, normalize(starts, domain.bounds), movable)
    for heat in range(num_heats):
        if heat > 0:
            index = state.values.topk((len(starts) + 1) // 2, dim=0).indices
            state = state.select(index)
            starts = starts.take_along_dim(index.unsqueeze(-1), dim=0)
        rounds = (num_rounds + heat) // num_heats
        state = advance(in_unit_cube, state, movable, rounds)
    # What did not move is left without the rounding of the way to the cube and back.
    candidates = torch.where(movable, unnormalize(state.points, domain.bounds), starts)
    return candidates, state.values


def _best_choice(
    acq_function: AcquisitionFunction,
    domain: RobustDomain,
    candidates: Tensor,
    count: int,
    rows: int,
) -> Tensor:
    """Compare the choices of the finite part, for all candidates of all members.

    Args:
        acq_function: The acquisition function.
        domain: A domain with one finite part.
        candidates: ``n x S x d`` points.
        count: How many of the nearest choices to compare.
        rows: The largest number of points of each member to evaluate at once.

    Returns:
        ``n x S x d`` points, each with the best choice for its continuous part.
    """
    x, theta = domain.split(candidates.flatten(0, 1).unsqueeze(-2))
    if domain.x_choices is not None:
        near = _nearest(domain.x_choices, x, domain.x_bounds, count)
        points = domain.join(near, theta)
    else:
        assert domain.theta_choices is not None
        near = _nearest(domain.theta_choices, theta, domain.theta_bounds, count)
        points = domain.join(x, near)
    points = points.unflatten(0, candidates.shape[:-1]).movedim(-2, 1)
    values = _evaluate(acq_function, points.flatten(0, 1), rows)
    best = values.unflatten(0, points.shape[:2]).argmax(dim=1, keepdim=True)
    chosen: Tensor = points.take_along_dim(best.unsqueeze(-1), dim=1).squeeze(1)
    return chosen


def _evaluate(acq_function: AcquisitionFunction, points: Tensor, rows: int) -> Tensor:
    """Evaluate an acquisition function in chunks.

    Args:
        acq_function: The acquisition function.
        points: ``n x S x d`` points.
        rows: The largest number of points of each member to evaluate at once.

    Returns:
        The ``n x S`` values.
    """
    with torch.no_grad():
        parts = points.unsqueeze(-2).split(rows)
        return torch.cat([acq_function(part) for part in parts])
