r"""The search for the best points of a batch of functions on a robust domain.

A function here has ``S`` members, each with its own points: it maps ``n x S x d``
points to ``n x S`` values. An acquisition function of one model has one member. All
members, all restarts and all choices of a finite set are evaluated together, in chunks
of a bounded number of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from botorch.utils.transforms import normalize, unnormalize
from torch import Tensor

from botorch_res.domain import DomainPart, RobustDomain
from botorch_res.optim.acquisition.ascent import advance, begin
from botorch_res.optim.tuples import select

# How often the choice of a finite part is made anew before a local search. On 18 random
# problems of 2 and 3 columns with 15 choices of theta, one or four times give the same
# maxima to 1 %.
NUM_EXCHANGES = 2
# Heats of a search in a box. After each, the worse half of the restarts is dropped. On
# 18 random problems of 2 and 3 columns a single heat gives the same maxima to 1 %.
# Dropping restarts pays where evaluations of a few points are not all overhead.
NUM_HEATS = 3


def maximize(
    function: Callable[[Tensor], Tensor],
    domain: RobustDomain,
    num_members: int,
    make_starts: Callable[[], Tensor],
    num_rounds: int,
    max_choices: int,
    rows: int,
    name: str,
) -> tuple[Tensor, Tensor]:
    """Maximise every member of a batch of functions over a robust domain.

    In a box, a quasi-Newton ascent runs from the starting points, in coordinates that
    make it a unit cube. If one part of the domain is a finite set, the search compares
    its choices and moves the other part in turns. If both are finite, it evaluates all
    points.

    Args:
        function: The functions.
        domain: The domain to search, the same for all members.
        num_members: The number ``S`` of members.
        make_starts: Returns ``num_restarts x S x d`` starting points. Not called if
            both parts are finite.
        num_rounds: The number of rounds of the local search.
        max_choices: The largest number of pairs of a starting point and a choice of a
            finite part that a member compares. If there are more, it compares the
            choices nearest to each starting point.
        rows: The largest number of points of each member to evaluate at once.
        name: The name of the functions in errors.

    Returns:
        The ``S x d`` best points and their ``S`` values.
    """
    parts = (domain.x, domain.theta)
    held = [i for part in parts if part.is_finite for i in part.columns]
    if len(held) == domain.dim:
        pairs = domain.all_pairs().flatten(0, 1).unsqueeze(-2)
        candidates = pairs.expand(-1, num_members, -1)
        values = evaluate(function, candidates, rows)
    elif held:
        candidates = make_starts()
        count = max(1, max_choices // len(candidates))
        rounds = (num_rounds + 1) // NUM_EXCHANGES
        for _ in range(NUM_EXCHANGES):
            chosen = _best_choice(function, domain, candidates, count, rows)
            candidates, values = _ascend(function, domain, chosen, held, rounds, 1)
    else:
        candidates, values = _ascend(
            function, domain, make_starts(), (), num_rounds, NUM_HEATS
        )
    if values.isnan().any():
        raise RuntimeError(
            f"{int(values.isnan().sum())} of {values.numel()} values of {name} are NaN."
        )
    values, best = values.max(dim=0, keepdim=True)
    candidates = candidates.take_along_dim(best.unsqueeze(-1), dim=0)
    return candidates.squeeze(0), values.squeeze(0)


def evaluate(function: Callable[[Tensor], Tensor], points: Tensor, rows: int) -> Tensor:
    """Evaluate functions in chunks.

    Args:
        function: The functions.
        points: ``n x S x d`` points.
        rows: The largest number of points of each member to evaluate at once.

    Returns:
        The ``n x S`` values.
    """
    with torch.no_grad():
        return torch.cat([function(chunk) for chunk in points.split(rows)])


def _ascend(
    function: Callable[[Tensor], Tensor],
    domain: RobustDomain,
    starts: Tensor,
    held: Sequence[int],
    num_rounds: int,
    num_heats: int,
) -> tuple[Tensor, Tensor]:
    """Ascend from all starts at once. After each heat the better half continues."""

    def in_unit_cube(u: Tensor) -> Tensor:
        values = function(unnormalize(u.flatten(0, 1), domain.bounds))
        unflattened: Tensor = values.unflatten(0, u.shape[:2])
        return unflattened

    movable = torch.ones_like(domain.bounds[0], dtype=torch.bool)
    movable[list(held)] = False
    state = begin(in_unit_cube, normalize(starts, domain.bounds), movable)
    for heat in range(num_heats):
        if heat > 0:
            index = state.values.topk((len(starts) + 1) // 2, dim=0).indices
            state = select(state, index, dim=0)
            starts = starts.take_along_dim(index.unsqueeze(-1), dim=0)
        rounds = (num_rounds + heat) // num_heats
        last = heat == num_heats - 1
        state = advance(in_unit_cube, state, movable, rounds, finish=last)
    # Fixed columns keep their exact values, without the rounding of the two mappings.
    candidates = torch.where(movable, unnormalize(state.points, domain.bounds), starts)
    return candidates, state.values


def _best_choice(
    function: Callable[[Tensor], Tensor],
    domain: RobustDomain,
    candidates: Tensor,
    count: int,
    rows: int,
) -> Tensor:
    """Give each point the best of the ``count`` nearest choices of the finite part."""
    x, theta = (
        _nearest(part, part.of(candidates).unsqueeze(1), count)
        for part in (domain.x, domain.theta)
    )
    points = domain.join(x, theta)
    values = evaluate(function, points.flatten(0, 1), rows)
    best = values.unflatten(0, points.shape[:2]).argmax(dim=1, keepdim=True)
    chosen: Tensor = points.take_along_dim(best.unsqueeze(-1), dim=1).squeeze(1)
    return chosen


def _nearest(part: DomainPart, values: Tensor, count: int) -> Tensor:
    """Find the ``n x count x S x d`` choices nearest to ``n x 1 x S x d`` values."""
    if part.choices is None:
        return values
    unit = normalize(part.choices, part.bounds)
    distance = torch.cdist(normalize(values, part.bounds), unit)
    nearest = distance.topk(min(count, len(unit)), largest=False).indices
    return part.choices[nearest.squeeze(1).movedim(-1, 1)]
