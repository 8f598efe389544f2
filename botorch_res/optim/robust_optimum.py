r"""The robust optimum ``min over x of max over theta of f(x, theta)``, batched.

The worst-case value ``g(x) = max over theta of f(x, theta)`` has kinks where two thetas
tie, and its minimum usually sits on one, so that descent along its gradient stalls.

1. Screening: ``g`` on many ``x`` and a grid of thetas, by matrix products. The best
   ``x`` that are not neighbours of one another are the starts.
2. Descent: at each start, the local worst cases ``theta_k(x)`` give smooth branches
   ``f(x, theta_k(x))`` with known gradients and Hessians. The next point is the minimum
   of the largest of their quadratic models in a trust region, which finds kinks and
   corners as easily as smooth minima. It is taken if ``g`` is smaller there. A theta
   that is the worst case on the far side of a kink only is no local worst case on the
   near side: the worst theta of the point left behind, or not taken, is exchanged.
3. Verification: a fresh global search for the worst case at the points reached.

The numbers of starts and of steps are fixed, and all functions and starts move at once.
A finite set of ``x`` needs none of this: all of them are compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from botorch.exceptions.errors import InputDataError
from torch import Tensor

from botorch_res.domain import RobustDomain
from botorch_res.optim.arguments import check_counts, check_tensor
from botorch_res.optim.branches import Branches
from botorch_res.optim.minimax import minimize_maximum
from botorch_res.optim.product_grid import ProductGrid, grid_counts
from botorch_res.optim.worst_case import WorstCase, WorstCaseSolver
from botorch_res.sampling import BatchFunction

# In more dimensions the candidates are a Sobol sequence instead of a grid.
MAX_GRID_DIMENSION = 3
# So many of the highest branches are followed from step to step.
NUM_FOLLOWED = 2


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
    effort: float = 1.0,
    num_starts: int | None = None,
    num_steps: int = 3,
    initial_x: Tensor | None = None,
) -> RobustOptimum:
    """Minimise the worst case of every function of a batch.

    Args:
        function: Posterior samples, or any differentiable callable that maps ``n x d``
            and ``sample_shape x n x d`` points to ``sample_shape x n`` values. Or a
            solver that has been made for them, which knows the domain and the effort.
        domain: The domain of functions.
        effort: Scales the density of the grids and the number of local searches.
        num_starts: The number of starts for each function.
        num_steps: The number of descent steps from each start.
        initial_x: ``n x d_x`` points to consider besides those of the screening.

    Returns:
        The robust optima.

    Example:
        >>> def f(z):
        ...     return (z[..., 0] - 0.1 * z[..., 1]).square()
        >>> x, theta, value = robust_optimum(f, domain)
    """
    if isinstance(function, WorstCaseSolver):
        solver = function
        if domain is not None:
            raise InputDataError(
                "Expected no `domain` beside a WorstCaseSolver, which has its own, got "
                f"{domain!r}."
            )
    else:
        solver = WorstCaseSolver(function, domain, effort)  # type: ignore[arg-type]
    domain = solver.domain
    check_counts(
        num_starts=(1 if num_starts is None else num_starts, 1),
        num_steps=(num_steps, 1),
    )
    if initial_x is not None:
        check_tensor(initial_x=initial_x)
        if not bool(domain.x.contains(initial_x).all()):
            raise InputDataError(
                f"Expected `initial_x` in the domain, got {initial_x.tolist()}."
            )
    with torch.no_grad():
        if domain.x.choices is not None:
            return _best([(domain.x.choices, solver(domain.x.choices))])
        candidates, spacing, typical_starts = _candidates(solver)
        if initial_x is not None:
            candidates = torch.cat([candidates, initial_x])
        starts = _screen(solver, candidates, spacing, num_starts or typical_starts)
        return _search(solver, starts, spacing, num_steps)


def _search(
    solver: WorstCaseSolver, x: Tensor, spacing: Tensor, num_steps: int
) -> RobustOptimum:
    """Descend from all starts, verify, and descend again.

    The second descent mends what the first one missed, because its worst cases come
    from a fresh global search. Only the better half of the starts takes part in it.

    Args:
        solver: Finds worst cases.
        x: ``sample_shape x k x d_x`` starts.
        spacing: ``d_x`` distances of neighbouring candidates.
        num_steps: The number of steps of each descent.

    Returns:
        The best of all points at which the worst case was searched for globally.
    """
    worst = solver(x)
    seen = [(x, worst)]
    for radius in (spacing, 0.25 * spacing):
        x = _descend(solver, x, worst.theta, radius, num_steps)
        worst = solver(x)
        seen.append((x, worst))
        order = worst.value.topk((x.shape[-2] + 1) // 2, largest=False).indices
        x = x.take_along_dim(order.unsqueeze(-1), dim=-2)
        worst = worst.select(order)
    return _best(seen)


def _best(seen: list[tuple[Tensor, WorstCase]]) -> RobustOptimum:
    """Choose the ``x`` with the smallest worst-case value.

    Args:
        seen: Some ``n x d_x`` or ``sample_shape x n x d_x`` points with their worst
            cases, in any number of parts.

    Returns:
        The best points.
    """
    value = torch.cat([worst.value for _, worst in seen], dim=-1)
    theta = torch.cat([worst.theta for _, worst in seen], dim=-2)
    x = torch.cat([x.expand(*worst.value.shape, -1) for x, worst in seen], dim=-2)
    value, index = value.min(dim=-1, keepdim=True)
    index = index.unsqueeze(-1)
    return RobustOptimum(
        x.take_along_dim(index, dim=-2).squeeze(-2),
        theta.take_along_dim(index, dim=-2).squeeze(-2),
        value.squeeze(-1),
    )


def _candidates(solver: WorstCaseSolver) -> tuple[Tensor, Tensor, int]:
    """Points that fill the box of ``x``, and how far apart they are.

    Args:
        solver: Knows the domain and the functions.
        effort: Scales the number of points.

    Returns:
        ``N x d_x`` points, their ``d_x`` spacing, and how many of them to start from:
        more if the functions are rough.
    """
    domain, effort = solver.domain, solver.effort
    bounds = domain.x.bounds
    width = bounds[1] - bounds[0]
    max_points = round(4096 * effort)
    scale = solver.lengthscale(domain.x)
    counts = grid_counts(scale, width, 3.75 * effort, max_points)
    num_starts = round(math.prod(0.5 + 0.25 * n for n in counts))
    num_starts = min(max(4, num_starts), 16 * domain.x.dim)
    if domain.x.dim > MAX_GRID_DIMENSION:
        spacing = width * max_points ** (-1.0 / domain.x.dim)
        points = (domain.x.sample(max_points, seed=0) - bounds[0]) / width
        if scale is not None:  # the same points in whatever order the columns are
            points = points.index_select(-1, (width / scale).argsort().argsort())
        return bounds[0] + width * points, spacing, num_starts
    grid = ProductGrid(counts, bounds)
    return bounds[0] + width * grid.points, width * grid.spacing, num_starts


def _screen(
    solver: WorstCaseSolver, candidates: Tensor, spacing: Tensor, num_starts: int
) -> Tensor:
    """Find good starts: candidates with a small worst case, far from one another.

    Args:
        solver: Finds worst cases.
        candidates: ``N x d_x`` points.
        spacing: ``d_x`` distances of neighbouring candidates.
        num_starts: The number ``k`` of starts.

    Returns:
        ``sample_shape x k x d_x`` starts.
    """
    value = solver.bound(candidates)
    value, index = value.topk(min(8 * num_starts, len(candidates)), largest=False)
    x = candidates[index]
    # A candidate next to a better one leads to the same minimum.
    apart = torch.cdist(x / spacing, x / spacing, p=math.inf)
    rank = torch.arange(x.shape[-2], device=x.device)
    shadowed = ((apart < 1.5) & (rank < rank.unsqueeze(-1))).any(dim=-1)
    score = rank + len(rank) * shadowed
    order = score.topk(min(num_starts, len(rank)), largest=False).indices
    return x.take_along_dim(order.unsqueeze(-1), dim=-2)


def _descend(
    solver: WorstCaseSolver, x: Tensor, theta: Tensor, radius: Tensor, num_steps: int
) -> Tensor:
    """Move all starts to local minima of the worst-case value.

    Args:
        solver: Finds local worst cases.
        x: ``sample_shape x k x d_x`` starts.
        theta: ``sample_shape x k x d_theta`` their worst cases.
        radius: ``d_x`` initial size of the trust region.
        num_steps: The number of steps.

    Returns:
        ``sample_shape x k x d_x`` points.
    """
    lower, upper = solver.domain.x.bounds
    num_branches = max(4, solver.domain.x.dim + 2)
    radius = radius.expand(x.shape)
    known = theta.unsqueeze(-2).expand(*theta.shape[:-1], NUM_FOLLOWED, -1)
    branches = solver.local(x, num_branches, known)
    other = branches
    complete = solver.is_complete(num_branches)
    for _ in range(num_steps):
        bounds = branches
        if not complete:
            cuts = solver.hold(x, _highest(other, 1, other.theta))
            bounds = _join(branches, cuts)
        low, high = torch.maximum(lower, x - radius), torch.minimum(upper, x + radius)
        trial = _model_minimum(x, bounds, low, high)
        new = solver.local(trial, num_branches, _follow(branches, trial - x))
        better = new.value.amax(dim=-1) < branches.value.amax(dim=-1)
        one = better.unsqueeze(-1)
        far = ((trial - x).abs() > 0.9 * radius).any(dim=-1, keepdim=True)
        grown = torch.where(far, 2.0 * radius, radius)
        radius = torch.where(one, grown, 0.25 * radius)
        x = torch.where(one, trial, x)
        if not complete:
            other = _choose(better, branches, new)
        branches = _choose(better, new, branches)
    return x


def _choose(condition: Tensor, first: Branches, second: Branches) -> Branches:
    """Choose between two sets of branches at each point.

    Args:
        condition: ``...`` booleans.
        first: Branches at the points, taken where the condition holds.
        second: Branches at the points, taken elsewhere.

    Returns:
        The branches chosen.
    """
    return Branches(
        *(
            torch.where(condition[(...,) + (None,) * (a.ndim - condition.ndim)], a, b)
            for a, b in zip(first, second, strict=True)
        )
    )


def _join(branches: Branches, cuts: Branches) -> Branches:
    """Add functions of ``x`` at other thetas, which are bounds of the worst case.

    Args:
        branches: Local worst cases.
        cuts: The other thetas.

    Returns:
        All of them.
    """
    axis = branches.value.ndim - 1
    return Branches(
        *(torch.cat(pair, axis) for pair in zip(branches, cuts, strict=True))
    )


def _highest(branches: Branches, k: int, theta: Tensor) -> Tensor:
    """The thetas of the highest branches.

    Args:
        branches: Local worst cases.
        k: How many of them to take, at most.
        theta: ``... x m x d_theta`` thetas, one for each branch.

    Returns:
        ``... x k x d_theta`` thetas.
    """
    index = branches.value.topk(min(k, theta.shape[-2]), dim=-1).indices
    return theta.take_along_dim(index.unsqueeze(-1), dim=-2)


def _follow(branches: Branches, move: Tensor) -> Tensor:
    """Predict where the highest branches go as ``x`` moves.

    Args:
        branches: Local worst cases at ``x``.
        move: ``... x d_x`` change of ``x``.

    Returns:
        ``... x NUM_FOLLOWED x d_theta`` predicted local worst cases.
    """
    moved = branches.theta + (branches.shift @ move[..., None, :, None]).squeeze(-1)
    return _highest(branches, NUM_FOLLOWED, moved)


def _model_minimum(x: Tensor, branches: Branches, low: Tensor, high: Tensor) -> Tensor:
    """Minimise the largest of the branches' quadratic models over a box.

    Args:
        x: ``... x d_x`` points of expansion.
        branches: Local worst cases there, and other bounds of the worst case.
        low: ``... x d_x`` lower corner of the box.
        high: ``... x d_x`` upper corner of the box.

    Returns:
        ``... x d_x`` points of the box.
    """
    width = high - low
    # Expand about the lower corner instead, in units of the box.
    move = (low - x).unsqueeze(-2)
    gradient, hessian = branches.gradient, branches.hessian
    bend = (hessian @ move.unsqueeze(-1)).squeeze(-1)
    value = branches.value + ((gradient + 0.5 * bend) * move).sum(dim=-1)
    gradient = (gradient + bend) * width.unsqueeze(-2)
    hessian = hessian * (width.unsqueeze(-1) * width.unsqueeze(-2)).unsqueeze(-3)
    u = minimize_maximum(value, gradient, hessian)
    return torch.where(u >= 1.0, high, low + width * u)
