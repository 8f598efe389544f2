r"""The robust optimum ``min over x of max over theta of f(x, theta)``, batched.

The worst-case value ``g(x) = max over theta of f(x, theta)`` has kinks where two thetas
tie. Its minimum usually lies on a kink, where descent along the gradient stalls. So the
search has three stages:

1. Screening evaluates ``g`` at many ``x`` on a grid of thetas, by matrix products. The
   best ``x`` that are not neighbours of each other become the starts.
2. Descent: at each start, the local worst cases ``theta_k(x)`` give smooth branches
   ``f(x, theta_k(x))`` with known gradients and Hessians. The trial point minimises the
   largest of their quadratic models in a trust region. This finds kinks and corners as
   easily as smooth minima. The search moves there if ``g`` is smaller. A theta may be
   the worst case on the far side of a kink, but not even a local one on the near side.
   So each step also knows the worst theta of the previous, or rejected, point.
3. Verification: a new global search for the worst case at the points reached.

The numbers of starts and steps are fixed, and all functions and starts move together.
If some columns of ``x`` are listed, each row of listed values is screened on its own,
and the search moves in the free columns. In a finite set of ``x`` all of them are
compared instead. Linear constraints are constraints of the quadratic models, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, cast

import torch
from botorch.exceptions.errors import InputDataError
from torch import Tensor

from botorch_res.checks import check_number, check_points, check_type
from botorch_res.domain import RobustDomain
from botorch_res.optim.robust_optima.minimax import minimize_maximum
from botorch_res.optim.tuples import join, select, where
from botorch_res.optim.worst_cases.branches import Branches
from botorch_res.optim.worst_cases.product_grid import ProductGrid, grid_counts
from botorch_res.optim.worst_cases.solver import WorstCaseSolver
from botorch_res.sampling import BatchFunction

# In more dimensions the candidates are a Sobol sequence instead of a grid. A safe
# choice: in four dimensions, a grid of 4096 points has only eight along each axis.
MAX_GRID_DIMENSION = 3
# The numbers below were chosen on 80 to 480 posterior samples of each of five kinds of
# problem, from 1+1 to 3+1 columns. A miss is a robust optimum more than 1e-3 of the
# standard deviation above the best that any variant finds. There was none with these.
#
# Candidates per lengthscale. Half as many miss 0.2 % (1+1) to 1.3 % (3+1). Twice as
# many change nothing and take up to 1.4 times as long.
CANDIDATE_DENSITY = 3.75
# The largest number of candidates. A quarter of it misses 3 % of rough functions
# (Matern 5/2 in 2+1 columns).
MAX_CANDIDATES = 4096
# Starts per candidate along an axis. Half as many miss 0.3 to 1.3 %. Twice as many
# improve optima that are off by 1e-5, and take 1.2 to 1.7 times as long.
STARTS_PER_POINT = 0.25
# The largest number of starts for each column of x. On 256 functions of two and three
# columns it misses none. Half of it misses one. Twice as many take 1.5 times as long.
MAX_STARTS_PER_COLUMN = 16
# How many of the best candidates per start are looked at to find starts that are not
# neighbours. On the same functions two are as good.
POOL_PER_START = 8
# There are as many starts as for this many rows of listed values, the best of all rows.
MAX_ROWS = 4
# Candidates closer than this many spacings are neighbours: the next ones along axes and
# diagonals. On the same functions it makes no difference to allow neighbours.
APART = 1.5
# The first trust region of the second descent, in units of that of the first descent.
# Without a second descent up to 1.3 % are missed. From 1/16 to 1 its size does not
# matter.
SECOND_RADIUS = 0.25
# How many of the highest branches are followed from step to step: one for each side of
# a kink. With one or four the optima are the same.
NUM_FOLLOWED = 2
# A failed step shrinks the trust region to this share of it, and a good step to nearly
# its end makes it grow. Textbook values: shrinking to a half, or no growth, gives the
# same optima on the 256 functions.
SHRINKAGE, GROWTH, NEARLY = 0.25, 2.0, 0.9


class RobustOptimum(NamedTuple):
    """Robust optima of ``sample_shape`` functions.

    Attributes:
        x: ``sample_shape x d_x``, the paper's ``x*``.
        theta: ``sample_shape x d_theta``, the worst case there.
        value: ``sample_shape``, the paper's ``f*``.
    """

    x: Tensor
    theta: Tensor
    value: Tensor


def robust_optimum(
    function: BatchFunction | Callable[[Tensor], Tensor] | WorstCaseSolver,
    domain: RobustDomain | None = None,
    effort: float | None = None,
    num_starts: int | None = None,
    num_steps: int = 3,
    initial_x: Tensor | None = None,
) -> RobustOptimum:
    """Minimise the worst case of every function of a batch.

    Args:
        function: Posterior samples, or any differentiable callable that maps ``n x d``
            and ``sample_shape x n x d`` points to ``sample_shape x n`` values. A solver
            made for such functions works, too, and knows the domain and the effort.
        domain: The domain of the functions.
        effort: Scales the density of the grids and the number of local searches. The
            default is 1.
        num_starts: The number of starts for each function. If columns of ``x`` are
            listed, this is the largest number for one row of listed values.
        num_steps: The number of descent steps from each start.
        initial_x: ``n x d_x`` points to screen in addition.

    Returns:
        The robust optima.

    Example:
        >>> def f(z):
        ...     return (z[..., 0] - 0.1 * z[..., 1]).square()
        >>> x, theta, value = robust_optimum(f, domain)
    """
    if not isinstance(function, WorstCaseSolver):
        check_type("domain", domain, RobustDomain)
        effort = 1.0 if effort is None else effort
        solver = WorstCaseSolver(function, cast(RobustDomain, domain), effort)
    elif domain is None and effort is None:
        solver = function
    else:
        raise InputDataError(
            "Expected no `domain` and no `effort` beside a WorstCaseSolver, which has "
            "its own: leave them out."
        )
    domain = solver.domain
    check_number("num_starts", 1 if num_starts is None else num_starts, 1)
    check_number("num_steps", num_steps, 1)
    if initial_x is not None:
        check_points("initial_x", initial_x, domain.x.dim, "m")
        if not bool(domain.x.contains(initial_x).all()):
            raise InputDataError(
                f"Expected `initial_x` in the domain, got {initial_x.tolist()}."
            )
    with torch.no_grad():
        if domain.x.choices is not None:
            worst = solver(domain.x.choices)
            x = domain.x.choices.expand(*worst.value.shape, -1)
            return _best(RobustOptimum(x, *worst))
        candidates, spacing, typical_starts = _candidates(solver)
        if initial_x is not None:
            told = domain.x.free_of(initial_x)
            told = told.expand(*candidates.shape[:-2], -1, -1)
            candidates = torch.cat([candidates, told], dim=-2)
        starts = _screen(solver, candidates, spacing, num_starts or typical_starts)
        return _search(solver, starts, spacing, num_steps)


def _search(
    solver: WorstCaseSolver, x: Tensor, spacing: Tensor, num_steps: int
) -> RobustOptimum:
    """Descend from all starts, verify, and descend again from the better half."""
    # The second descent finds what the first one missed, because its worst cases come
    # from a new global search.
    found = RobustOptimum(x, *solver(x))
    seen = [found]
    for radius in (spacing, SECOND_RADIUS * spacing):
        x = _descend(solver, found.x, found.theta, radius, num_steps)
        found = RobustOptimum(x, *solver(x))
        seen.append(found)
        half = (x.shape[-2] + 1) // 2
        found = select(found, found.value.topk(half, largest=False).indices)
    return _best(join(seen, dim=x.ndim - 2))


def _best(found: RobustOptimum) -> RobustOptimum:
    """Select the best of ``sample_shape x n`` points with their worst cases."""
    best = select(found, found.value.argmin(dim=-1, keepdim=True))
    axis = found.value.ndim - 1
    return RobustOptimum(*(part.squeeze(axis) for part in best))


def _candidates(solver: WorstCaseSolver) -> tuple[Tensor, Tensor, int]:
    """Fill the space of the free columns: points, their spacing, a number of starts.

    The points are those of each row if there are linear constraints.
    """
    domain, effort = solver.domain, solver.effort
    bounds = domain.x.free_bounds
    width = bounds[1] - bounds[0]
    dim = len(width)
    max_points = round(MAX_CANDIDATES * effort)
    scale = solver.lengthscale(domain.x)
    counts = grid_counts(scale, width, CANDIDATE_DENSITY * effort, max_points)
    num_starts = round(math.prod(0.5 + STARTS_PER_POINT * n for n in counts))
    num_starts = min(max(4, num_starts), MAX_STARTS_PER_COLUMN * dim)
    if dim > MAX_GRID_DIMENSION:
        spacing = width * max_points ** (-1.0 / dim)
        part = domain.x.relaxed
        points = part.free_of(part.sample(max_points, seed=0))
        points = (points - bounds[0]) / width
        if scale is not None:  # the same points whatever the order of the columns
            points = points.index_select(-1, (width / scale).argsort().argsort())
        points = bounds[0] + width * points
    else:
        grid = ProductGrid(counts, bounds)
        points, spacing = bounds[0] + width * grid.points, width * grid.spacing
    if domain.x.is_constrained:
        points = domain.x.combine(points, domain.x.rows.unsqueeze(-2))
        points = domain.x.free_of(domain.x.spread(points))
    return points, spacing, num_starts


def _screen(
    solver: WorstCaseSolver, candidates: Tensor, spacing: Tensor, num_starts: int
) -> Tensor:
    """Choose candidates with a small worst case that are not neighbours."""
    part = solver.domain.x
    candidates = part.inward(part.combine(candidates, part.rows.unsqueeze(-2)))
    value = solver.lower_bound(candidates.flatten(end_dim=-2))
    if not part.is_box:
        value = value.unflatten(-1, candidates.shape[:2])
    pool = min(POOL_PER_START * num_starts, candidates.shape[-2])
    value, index = value.topk(pool, largest=False)
    x = candidates.expand(*value.shape[:-1], -1, -1)
    x = x.take_along_dim(index.unsqueeze(-1), dim=-2)
    # A candidate next to a better one leads to the same minimum.
    unit = part.free_of(x) / spacing
    apart = torch.cdist(unit, unit, p=math.inf)
    rank = torch.arange(x.shape[-2], device=x.device)
    shadowed = ((apart < APART) & (rank < rank.unsqueeze(-1))).any(dim=-1)
    score = rank + len(rank) * shadowed
    order = score.topk(min(num_starts, len(rank)), largest=False).indices
    x = x.take_along_dim(order.unsqueeze(-1), dim=-2)
    if part.is_box:
        return x
    value = value.gather(-1, order).flatten(-2)
    count = min(MAX_ROWS * num_starts, value.shape[-1])
    best = value.topk(count, largest=False).indices.unsqueeze(-1)
    return x.flatten(-3, -2).take_along_dim(best, dim=-2)


def _descend(
    solver: WorstCaseSolver, x: Tensor, theta: Tensor, radius: Tensor, num_steps: int
) -> Tensor:
    """Move all ``sample_shape x k x d_x`` starts to local minima of the worst case."""
    part = solver.domain.x
    lower, upper = part.free_bounds
    # With two fewer, the search misses 4 % of rough functions in 2+1 columns.
    num_branches = max(4, len(part.free) + 2)
    radius = radius.expand(*x.shape[:-1], -1)
    known = theta.unsqueeze(-2).expand(*theta.shape[:-1], NUM_FOLLOWED, -1)
    branches = solver.branches(x, num_branches, known)
    other = branches
    complete = solver.is_complete(num_branches)
    for _ in range(num_steps):
        bounds = branches
        if not complete:
            cuts = solver.hold(x, _highest(other, 1, other.theta))
            bounds = join([branches, cuts], dim=branches.value.ndim - 1)
        free = part.free_of(x)
        low = torch.maximum(lower, free - radius)
        high = torch.minimum(upper, free + radius)
        if not part.is_box:
            bounds = _in_columns(bounds, part.free)
        limits = (part.free_of(part.normals), part.slack(x))
        moved = _model_minimum(free, bounds, low, high, *limits)
        trial = part.inward(part.combine(moved, part.listed_of(x)))
        new = solver.branches(trial, num_branches, _follow(branches, trial - x))
        better = new.value.amax(dim=-1) < branches.value.amax(dim=-1)
        one = better.unsqueeze(-1)
        far = ((moved - free).abs() > NEARLY * radius).any(dim=-1, keepdim=True)
        grown = torch.where(far, GROWTH * radius, radius)
        radius = torch.where(one, grown, SHRINKAGE * radius)
        x = torch.where(one, trial, x)
        if not complete:
            other = where(better, branches, new)
        branches = where(better, new, branches)
    return x


def _in_columns(branches: Branches, columns: Tensor) -> Branches:
    """Keep the derivatives by some of the columns of ``x``."""
    square = branches.hessian.index_select(-1, columns).index_select(-2, columns)
    return branches._replace(
        gradient=branches.gradient.index_select(-1, columns), hessian=square
    )


def _highest(branches: Branches, k: int, theta: Tensor) -> Tensor:
    """Select the ``... x k x d_theta`` thetas of the highest branches."""
    index = branches.value.topk(min(k, theta.shape[-2]), dim=-1).indices
    return theta.take_along_dim(index.unsqueeze(-1), dim=-2)


def _follow(branches: Branches, move: Tensor) -> Tensor:
    """Predict where the highest branches go as ``x`` moves."""
    moved = branches.theta + (branches.shift @ move[..., None, :, None]).squeeze(-1)
    return _highest(branches, NUM_FOLLOWED, moved)


def _model_minimum(
    x: Tensor,
    branches: Branches,
    low: Tensor,
    high: Tensor,
    normals: Tensor,
    slack: Tensor,
) -> Tensor:
    """Minimise the largest of the branches' quadratic models over a box.

    The linear constraints have ``m x n`` normals, and a slack at ``x``.
    """
    width = high - low
    # Expand about the lower corner instead, in units of the box.
    move = (low - x).unsqueeze(-2)
    gradient, hessian = branches.gradient, branches.hessian
    bend = (hessian @ move.unsqueeze(-1)).squeeze(-1)
    value = branches.value + ((gradient + 0.5 * bend) * move).sum(dim=-1)
    gradient = (gradient + bend) * width.unsqueeze(-2)
    hessian = hessian * (width.unsqueeze(-1) * width.unsqueeze(-2)).unsqueeze(-3)
    slack = slack + move.squeeze(-2) @ normals.mT
    normals = normals * width.unsqueeze(-2)
    u = minimize_maximum(value, gradient, hessian, normals, slack)
    return torch.where(u >= 1.0, high, low + width * u)
