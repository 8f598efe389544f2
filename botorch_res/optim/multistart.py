r"""The search for the best points of a batch of functions on a robust domain.

A function here has ``S`` members, each with points of its own: it maps ``n x S x d``
points to ``n x S`` values. An acquisition function of one model is a batch of one
member. All members, all restarts and all choices of a finite set are evaluated
together, in chunks of a bounded number of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from botorch.utils.transforms import normalize, unnormalize
from torch import Tensor

from botorch_res.domain import RobustDomain
from botorch_res.optim.ascent import advance, begin

# Points near the sampled robust optima are drawn with these standard deviations, in
# widths of the box.
PERTURBATIONS = (1e-3, 1e-2, 1e-1)
# How often a finite part of the domain is chosen anew before a local search.
NUM_EXCHANGES = 2
# After each heat of a search in a box, the worse half of the restarts is given up.
NUM_HEATS = 3

BatchedFunction = Callable[[Tensor], Tensor]


def maximize(
    function: BatchedFunction,
    domain: RobustDomain,
    num_members: int,
    make_starts: Callable[[], Tensor],
    num_rounds: int,
    max_choices: int,
    rows: int,
    name: str,
) -> tuple[Tensor, Tensor]:
    """Maximise every member of a batch of functions over a robust domain.

    A box is searched by a quasi-Newton ascent from the starting points, in coordinates
    that make it a unit cube. Where one part of the domain is a finite set, comparing
    its choices and moving the other part take turns. Where both are finite, all points
    are evaluated.

    Args:
        function: The functions.
        domain: The domain to search, the same for all members.
        num_members: The number ``S`` of members.
        make_starts: Gives ``num_restarts x S x d`` starting points, if there is
            something to search.
        num_rounds: The number of rounds of the local search.
        max_choices: The largest number of pairs of a starting point and a choice of a
            finite part that a member compares; of more, the nearest ones.
        rows: The largest number of points of each member to evaluate at once.
        name: What the functions are called in an error.

    Returns:
        The ``S x d`` best points and their ``S`` values.
    """
    if domain.x.is_finite and domain.theta.is_finite:
        pairs = domain.all_pairs().flatten(0, 1).unsqueeze(-2)
        candidates = pairs.expand(-1, num_members, -1)
        values = evaluate(function, candidates, rows)
    elif domain.x.is_finite or domain.theta.is_finite:
        candidates = make_starts()
        held = domain.x.columns if domain.x.is_finite else domain.theta.columns
        count = max(1, max_choices // len(candidates))
        rounds = (num_rounds + 1) // NUM_EXCHANGES
        for _ in range(NUM_EXCHANGES):
            chosen = _best_choice(function, domain, candidates, count, rows)
            candidates, values = _climb(function, domain, chosen, held, rounds, 1)
    else:
        candidates, values = _climb(
            function, domain, make_starts(), (), num_rounds, NUM_HEATS
        )
    if values.isnan().any():
        raise RuntimeError(
            f"{int(values.isnan().sum())} of {values.numel()} values of {name} are NaN."
        )
    values, best = values.max(dim=0, keepdim=True)
    candidates = candidates.take_along_dim(best.unsqueeze(-1), dim=0)
    return candidates.squeeze(0), values.squeeze(0)


def evaluate(function: BatchedFunction, points: Tensor, rows: int) -> Tensor:
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


def put_optima_first(
    filling: Tensor, optima: Tensor | None, domain: RobustDomain
) -> Tensor:
    """Replace a quarter of the points by robust optima and points near them.

    Args:
        filling: ``batch_shape x n x d`` points that fill the domain: where they lie in
            their box decides on the perturbation; every other point takes over their
            choice of a finite set.
        optima: ``batch_shape x C x d`` robust optima, if there are any.
        domain: Their domain.

    Returns:
        ``batch_shape x n x d`` points of the domain, the first ``C`` of them the
        optima, if that is not more than a quarter.
    """
    if optima is None:
        return filling
    filling, rest = filling.tensor_split([filling.shape[-2] // 4], dim=-2)
    count = optima.shape[-2]
    index = torch.arange(filling.shape[-2], device=filling.device)
    base = optima.index_select(-2, index % count)
    unit = normalize(filling, domain.bounds).clamp(1e-6, 1.0 - 1e-6)
    scale = unit.new_tensor(PERTURBATIONS)[index % len(PERTURBATIONS)].unsqueeze(-1)
    step = scale * torch.special.ndtri(unit)
    moved = normalize(base, domain.bounds) + step
    moved = unnormalize(moved.clamp(0.0, 1.0), domain.bounds)
    other = (index % 2 == 1).unsqueeze(-1)
    parts = []
    for finite, of_base, of_moved, of_filling in zip(
        (domain.x.is_finite, domain.theta.is_finite),
        domain.split(base),
        domain.split(moved),
        domain.split(filling),
        strict=True,
    ):
        parts.append(torch.where(other, of_filling, of_base) if finite else of_moved)
    first = (index < count).unsqueeze(-1)
    near = torch.where(first, base, domain.join(*parts))
    return torch.cat([near, rest], dim=-2)


def _climb(
    function: BatchedFunction,
    domain: RobustDomain,
    starts: Tensor,
    held: Sequence[int],
    num_rounds: int,
    num_heats: int,
) -> tuple[Tensor, Tensor]:
    """Climb from all starts of all members at once.

    Args:
        function: The functions.
        domain: The domain.
        starts: ``num_restarts x S x d`` starting points.
        held: The columns that keep the values of their start.
        num_rounds: The number of rounds.
        num_heats: The rounds are so many heats. Only the better half of a member's
            starts that took part in a heat goes on to the next.

    Returns:
        The ``m x S x d`` candidates of the last heat and their values.
    """

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
            state = state.select(index)
            starts = starts.take_along_dim(index.unsqueeze(-1), dim=0)
        rounds = (num_rounds + heat) // num_heats
        last = heat == num_heats - 1
        state = advance(in_unit_cube, state, movable, rounds, finish=last)
    # What did not move is left without the rounding of the way to the cube and back.
    candidates = torch.where(movable, unnormalize(state.points, domain.bounds), starts)
    return candidates, state.values


def _best_choice(
    function: BatchedFunction,
    domain: RobustDomain,
    candidates: Tensor,
    count: int,
    rows: int,
) -> Tensor:
    """Compare the choices of the finite part, for all candidates of all members.

    Args:
        function: The functions.
        domain: A domain with one finite part.
        candidates: ``n x S x d`` points.
        count: How many of the nearest choices to compare.
        rows: The largest number of points of each member to evaluate at once.

    Returns:
        ``n x S x d`` points, each with the best choice for its continuous part.
    """
    x, theta = (part.unsqueeze(1) for part in domain.split(candidates))
    if domain.x.choices is not None:
        x = _nearest(domain.x.choices, x, domain.x.bounds, count)
    else:
        assert domain.theta.choices is not None
        theta = _nearest(domain.theta.choices, theta, domain.theta.bounds, count)
    points = domain.join(x, theta)
    values = evaluate(function, points.flatten(0, 1), rows)
    best = values.unflatten(0, points.shape[:2]).argmax(dim=1, keepdim=True)
    chosen: Tensor = points.take_along_dim(best.unsqueeze(-1), dim=1).squeeze(1)
    return chosen


def _nearest(choices: Tensor, parts: Tensor, bounds: Tensor, count: int) -> Tensor:
    """The choices next to given ones.

    Args:
        choices: ``n_choices x d_part`` choices.
        parts: ``n x 1 x S x d_part`` parts of points.
        bounds: ``2 x d_part`` bounds, whose distance is the unit of length.
        count: The number of choices wanted.

    Returns:
        ``n x count x S x d_part`` choices, or fewer if there are not so many.
    """
    distance = torch.cdist(normalize(parts, bounds), normalize(choices, bounds))
    nearest = distance.topk(min(count, len(choices)), largest=False).indices
    return choices[nearest.squeeze(1).movedim(-1, 1)]
