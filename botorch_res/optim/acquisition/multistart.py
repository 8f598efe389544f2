r"""The search for the best points of a batch of functions on a robust domain.

A function here has ``S`` members, each with its own points: it maps ``n x m x S x d``
points to ``n x m x S`` values. The ``m`` points have the same setting ``x``, so that
the worst cases there need to be found only once. An acquisition function of one model
has one member. All members, all restarts and all rows of listed values are evaluated
together, in chunks of a bounded number of points.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from botorch.utils.transforms import normalize, unnormalize
from torch import Tensor

from botorch_res.domain import DomainPart, RobustDomain
from botorch_res.optim.robust_optima.ascent import Feasible, advance, begin
from botorch_res.optim.tuples import select

# How often the listed values are chosen anew before a local search. On 18 random
# problems of 2 and 3 columns with 15 choices of theta, one or four times give the same
# maxima to 1 %.
NUM_EXCHANGES = 2
# Where x has listed and free columns, there are as many starts as for this many of the
# rows, at first. On 400 random functions with one free column in each part, the search
# misses 6 % of the maxima without this and 0.5 % with it (4 x 3 rows), and 12 and 2 %
# (12 x 12 rows). As many raw samples as in a box are enough to choose from. Where only
# theta has both, it misses 4 % without this (12 rows) and 3 % with twice the starts.
# With linear constraints there are as many. Corners between them have maxima that are
# hard to hit: on 100 random functions of three columns, the search misses 4 % without.
MAX_ROWS = 8
# Heats of an ascent. After each, the worse half of the starts is dropped. On 18 random
# problems of 2 and 3 columns a single heat gives the same maxima to 1 %. Dropping
# starts pays where evaluations of a few points are not all overhead.
NUM_HEATS = 3


def maximize(
    function: Callable[[Tensor], Tensor],
    domain: RobustDomain,
    num_members: int,
    make_starts: Callable[[], Tensor],
    num_restarts: int,
    num_rounds: int,
    max_choices: int,
    rows: int,
    name: str,
) -> tuple[Tensor, Tensor]:
    """Maximise every member of a batch of functions over a robust domain.

    A quasi-Newton ascent runs from the starting points in the free columns, in
    coordinates that make their box a unit cube. If there are listed columns, the search
    takes turns: it compares pairs of rows of ``x`` and of ``theta``, then moves in the
    free columns. If all columns are listed, it evaluates all points.

    Args:
        function: The functions.
        domain: The domain to search, the same for all members.
        num_members: The number ``S`` of members.
        make_starts: Returns ``n x S x d`` starting points. Not called if all columns
            are listed.
        num_restarts: How many of them are kept after comparing rows for the first time.
        num_rounds: The number of rounds of the local search.
        max_choices: About how many points a member compares at most, of a starting
            point and a pair of rows; see ``_best_rows``.
        rows: The largest number of points of each member to evaluate at once.
        name: The name of the functions in errors.

    Returns:
        The ``S x d`` best points and their ``S`` values.
    """
    parts = (domain.x, domain.theta)
    movable = ~domain.is_listed
    if all(part.is_finite for part in parts):
        pairs = domain.all_pairs().unsqueeze(-2).expand(-1, -1, num_members, -1)
        values = evaluate(function, pairs, rows).flatten(0, 1)
        candidates = pairs.flatten(0, 1)
    elif all(len(part.rows) == 1 and not part.is_constrained for part in parts):
        candidates, values = _ascend(
            function, domain, make_starts(), movable, num_rounds, 1
        )
    else:
        candidates = make_starts()
        count = max(1, max_choices // len(candidates))
        rounds = (num_rounds + 1) // NUM_EXCHANGES
        for _ in range(NUM_EXCHANGES):
            if not all(part.is_box for part in parts):
                candidates = _best_rows(function, domain, candidates, count, rows)
            candidates, values = _ascend(
                function, domain, candidates, movable, rounds, num_restarts
            )
            if len(candidates) > num_restarts:
                best = values.topk(num_restarts, dim=0).indices
                values = values.gather(0, best)
                candidates = candidates.take_along_dim(best.unsqueeze(-1), dim=0)
    if values.isnan().any():
        raise RuntimeError(
            f"{int(values.isnan().sum())} of {values.numel()} values of {name} are NaN."
        )
    values, best = values.max(dim=0, keepdim=True)
    candidates = candidates.take_along_dim(best.unsqueeze(-1), dim=0)
    return candidates.squeeze(0), values.squeeze(0)


def starts_per_restart(domain: RobustDomain) -> int:
    """How many times as many starts as in a box a search needs.

    Args:
        domain: The domain.

    Returns:
        The factor.
    """
    if domain.x.is_constrained:
        return MAX_ROWS
    parts = (domain.x, domain.theta)
    x, theta = (1 if part.is_finite else len(part.rows) for part in parts)
    return 1 if x == 1 else min(MAX_ROWS, x * theta)


def evaluate(function: Callable[[Tensor], Tensor], points: Tensor, rows: int) -> Tensor:
    """Evaluate functions in chunks.

    Args:
        function: The functions.
        points: ``n x m x S x d`` points.
        rows: The largest number of points of each member to evaluate at once.

    Returns:
        The ``n x m x S`` values.
    """
    chunks = points.split(max(1, rows // points.shape[1]))
    with torch.no_grad():
        return torch.cat(
            [torch.cat([function(p) for p in c.split(rows, 1)], 1) for c in chunks]
        )


def _ascend(
    function: Callable[[Tensor], Tensor],
    domain: RobustDomain,
    starts: Tensor,
    movable: Tensor,
    num_rounds: int,
    fewest: int,
) -> tuple[Tensor, Tensor]:
    """Ascend from all starts at once. The better half continues, or the fewest."""

    def in_unit_cube(u: Tensor) -> Tensor:
        values = function(unnormalize(u.flatten(0, 1), domain.bounds).unsqueeze(1))
        unflattened: Tensor = values.unflatten(0, u.shape[:2]).squeeze(2)
        return unflattened

    feasible = None
    if domain.x.is_constrained:
        normals = domain.x.embed(domain.x.normals)
        feasible = Feasible.in_unit_cube(
            normals, domain.x.limits, domain.inward, domain.bounds
        )
    state = begin(in_unit_cube, normalize(starts, domain.bounds), movable)
    for heat in range(NUM_HEATS):
        if heat > 0 and len(starts) > fewest:
            half = max(fewest, (len(starts) + 1) // 2)
            index = state.values.topk(half, dim=0).indices
            state = select(state, index, dim=0)
            starts = starts.take_along_dim(index.unsqueeze(-1), dim=0)
        rounds = (num_rounds + heat) // NUM_HEATS
        last = heat == NUM_HEATS - 1
        state = advance(in_unit_cube, state, movable, rounds, last, feasible)
    # Fixed columns keep their exact values, without the rounding of the two mappings.
    candidates = torch.where(movable, unnormalize(state.points, domain.bounds), starts)
    return candidates, state.values


def _best_rows(
    function: Callable[[Tensor], Tensor],
    domain: RobustDomain,
    candidates: Tensor,
    count: int,
    rows: int,
) -> Tensor:
    """Give each point the best pair of rows of ``x`` and of ``theta``.

    Points of all rows of ``x`` cost the most, because each needs its own worst cases.
    So the rows of ``theta`` are compared at the point's own ``x`` first, if there are
    too many pairs. The best of them are then compared in all rows of ``x``.

    Args:
        function: The functions.
        domain: The domain.
        candidates: ``n x S x d`` points.
        count: About how many pairs of rows to compare for each point. If a part has
            more rows, these are the nearest.
        rows: The largest number of points of each member to evaluate at once.

    Returns:
        The ``n x S x d`` points with their best rows.
    """
    x, theta = (_in_rows(part, candidates, count) for part in (domain.x, domain.theta))
    num_pairs = max(1, count // x.shape[1])
    if num_pairs < theta.shape[1]:
        own = domain.x.of(candidates).unsqueeze(1)
        values = evaluate(function, domain.join(own, theta), rows)
        best = values.topk(num_pairs, dim=1).indices.unsqueeze(-1)
        theta = theta.take_along_dim(best, dim=1)
    points = domain.inward(domain.join(x.unsqueeze(2), theta.unsqueeze(1)))
    values = evaluate(function, points.flatten(0, 1), rows)
    values = values.unflatten(0, x.shape[:2]).flatten(1, 2)
    best = values.argmax(dim=1, keepdim=True).unsqueeze(-1)
    chosen: Tensor = points.flatten(1, 2).take_along_dim(best, dim=1).squeeze(1)
    return chosen


def _in_rows(part: DomainPart, candidates: Tensor, count: int) -> Tensor:
    """Give ``n x S x d`` points a part's nearest rows: ``n x count x S x d_part``."""
    own = part.of(candidates)
    distances = part.distances_to_rows(own)
    nearest = distances.topk(min(count, len(part.rows)), largest=False).indices
    free = part.free_of(own).unsqueeze(1)
    return part.combine(free, part.rows[nearest.movedim(-1, 1)])
