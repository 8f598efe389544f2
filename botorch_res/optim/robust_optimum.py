r"""The robust optimum ``min over x of max over theta of f(x, theta)``, batched.

The worst-case value ``g(x) = max over theta of f(x, theta)`` has kinks where two thetas
tie, and its minimum usually sits on one, so that descent along its gradient stalls.

1. Screening: ``g`` on many ``x`` and a grid of thetas, by matrix products. The best ``x``
   that are not neighbours of one another are the starts.
2. Descent: at each start, the local worst cases ``theta_k(x)`` give smooth branches
   ``f(x, theta_k(x))`` with known gradients and Hessians. The next point is the minimum
   of the largest of their quadratic models in a trust region, which finds kinks and
   corners as easily as smooth minima. It is taken if ``g`` is smaller there.
3. Verification: a fresh global search for the worst case at the points reached.

The numbers of starts and of steps are fixed, and all functions and starts move at once. A
finite set of ``x`` needs none of this: all of them are compared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from botorch_res.domain import RobustDomain
from botorch_res.optim.minimax import minimize_maximum
from botorch_res.optim.theta_grid import ThetaGrid, grid_counts
from botorch_res.optim.worst_case import Branches, WorstCase, WorstCaseSolver
from botorch_res.sampling import BatchFunction
from botorch_res.sampling import function as base


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
    function: BatchFunction | Callable[[Tensor], Tensor],
    domain: RobustDomain,
    effort: float = 1.0,
    num_starts: int | None = None,
    num_steps: int = 8,
    initial_x: Tensor | None = None,
) -> RobustOptimum:
    """Minimise the worst case of every function of a batch.

    Args:
        function: Posterior samples, or any differentiable callable that maps ``n x d``
            and ``sample_shape x n x d`` points to ``sample_shape x n`` values.
        domain: The domain.
        effort: Scales the density of the grids and the number of local searches.
        num_starts: The number of starts for each function.
        num_steps: The number of descent steps from each start.
        initial_x: ``n x d_x`` points to consider besides those of the screening.

    Returns:
        The robust optima.
    """
    solver = (
        function
        if isinstance(function, WorstCaseSolver)
        else WorstCaseSolver(function, domain, effort)
    )
    with torch.no_grad():
        if domain.x_choices is not None:
            x = domain.x_choices
            return _best(x, solver(x))
        candidates, spacing = _candidates(solver, effort)
        if initial_x is not None:
            candidates = torch.cat([candidates, initial_x])
        if num_starts is None:
            num_starts = max(4, round(4 * domain.x_dim * effort))
        x = _screen(solver, candidates, spacing, num_starts)
        x = _descend(solver, x, spacing, num_steps)
        return _best(x, solver(x))


def _best(x: Tensor, worst: WorstCase) -> RobustOptimum:
    """Choose the ``x`` with the smallest worst-case value.

    Args:
        x: ``n x d_x`` or ``sample_shape x n x d_x`` points.
        worst: Their worst cases.

    Returns:
        The best points.
    """
    value, index = worst.value.min(dim=-1, keepdim=True)
    x = x.expand(*worst.value.shape, x.shape[-1])
    return RobustOptimum(
        x.take_along_dim(index.unsqueeze(-1), dim=-2).squeeze(-2),
        worst.theta.take_along_dim(index.unsqueeze(-1), dim=-2).squeeze(-2),
        value.squeeze(-1),
    )


def _candidates(solver: WorstCaseSolver, effort: float) -> tuple[Tensor, Tensor]:
    """Points that fill the box of ``x``, and how far apart they are.

    Args:
        solver: Knows the domain and the functions.
        effort: Scales the number of points.

    Returns:
        ``N x d_x`` points and their ``d_x`` spacing.
    """
    domain = solver.domain
    bounds = domain.x_bounds
    width = bounds[1] - bounds[0]
    scale = solver.function.lengthscale
    if scale is not None:
        scale = scale.index_select(-1, solver.x_columns)
    counts = grid_counts(scale, width, 2.5 * effort, round(4096 * effort))
    grid = ThetaGrid(counts, bounds)
    return bounds[0] + width * grid.points, width * grid.spacing


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
    shape = solver.function.sample_shape
    rows = max(1, base.MAX_ELEMENTS // (shape.numel() * len(solver.thetas)))
    parts = [solver.table(part).amax(dim=-1) for part in candidates.split(rows)]
    value = torch.cat(parts, dim=-1)
    value, index = value.topk(min(8 * num_starts, len(candidates)), largest=False)
    x = candidates[index]
    # A candidate next to a better one leads to the same minimum.
    apart = ((x.unsqueeze(-2) - x.unsqueeze(-3)) / spacing).abs().amax(dim=-1)
    rank = torch.arange(x.shape[-2], device=x.device)
    shadowed = ((apart < 1.5) & (rank < rank.unsqueeze(-1))).any(dim=-1)
    score = rank + len(rank) * shadowed
    order = score.topk(min(num_starts, len(rank)), largest=False).indices
    return x.take_along_dim(order.unsqueeze(-1), dim=-2)


def _descend(
    solver: WorstCaseSolver, x: Tensor, spacing: Tensor, num_steps: int
) -> Tensor:
    """Move all starts to local minima of the worst-case value.

    Args:
        solver: Finds local worst cases.
        x: ``sample_shape x k x d_x`` starts.
        spacing: ``d_x`` initial size of the trust region.
        num_steps: The number of steps.

    Returns:
        ``sample_shape x k x d_x`` points.
    """
    lower, upper = solver.domain.x_bounds
    num_branches = max(4, solver.domain.x_dim + 2)
    radius = spacing.expand(x.shape)
    branches = solver.local(x, num_branches)
    for _ in range(num_steps):
        low, high = torch.maximum(lower, x - radius), torch.minimum(upper, x + radius)
        trial = _model_minimum(x, branches, low, high)
        new = solver.local(trial, num_branches)
        better = new.value.amax(dim=-1) < branches.value.amax(dim=-1)
        one = better.unsqueeze(-1)
        far = ((trial - x).abs() > 0.9 * radius).any(dim=-1, keepdim=True)
        grown = torch.where(far, 2.0 * radius, radius)
        radius = torch.where(one, grown, 0.25 * radius)
        x = torch.where(one, trial, x)
        branches = Branches(
            *(
                torch.where(
                    better.reshape(*better.shape, *[1] * (a.ndim - better.ndim)), a, b
                )
                for a, b in zip(new, branches, strict=True)
            )
        )
    return x


def _model_minimum(x: Tensor, branches: Branches, low: Tensor, high: Tensor) -> Tensor:
    """Minimise the largest of the branches' quadratic models over a box.

    Args:
        x: ``... x d_x`` points of expansion.
        branches: Local worst cases there.
        low: ``... x d_x`` lower corner of the box.
        high: ``... x d_x`` upper corner of the box.

    Returns:
        ``... x d_x`` points of the box.
    """
    width = high - low
    # Expand about the lower corner instead, in units of the box.
    move = (low - x).unsqueeze(-2)
    bend = (branches.hessian @ move.unsqueeze(-1)).squeeze(-1)
    value = branches.value + ((branches.gradient + 0.5 * bend) * move).sum(dim=-1)
    gradient = (branches.gradient + bend) * width.unsqueeze(-2)
    hessian = branches.hessian * (width.unsqueeze(-1) * width.unsqueeze(-2)).unsqueeze(
        -3
    )
    u = minimize_maximum(value, gradient, hessian)
    return torch.where(u >= 1.0, high, low + width * u)
