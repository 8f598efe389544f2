r"""Descent to local robust optima, for many functions and starts at once.

At each point, the local worst cases ``theta_k(x)`` give smooth branches
``f(x, theta_k(x))`` with known gradients and Hessians. The next point minimises the
largest of their quadratic models in a trust region. Every constraint has branches of
its own, and a penalty for the largest of them where it is positive.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from botorch_res.optim.robust_optima.minimax import Quadratics, minimize_maximum
from botorch_res.optim.robust_optima.robust_problem import (
    ConstrainedOptimum,
    RobustProblem,
    largest_violation,
)
from botorch_res.optim.tuples import join, where
from botorch_res.optim.worst_cases.branches import Branches
from botorch_res.optim.worst_cases.solver import WorstCaseSolver

# How many of the highest branches are followed from step to step: one for each side of
# a kink. With one or four the optima are the same.
NUM_FOLLOWED = 2
# A failed step shrinks the trust region to this share of it, and a good step to nearly
# its end makes it grow. Textbook values: shrinking to a half, or no growth, gives the
# same optima on the 256 functions.
SHRINKAGE, GROWTH, NEARLY = 0.25, 2.0, 0.9


class Price(NamedTuple):
    """What a violation costs, for each function.

    Attributes:
        penalty: ``sample_shape x 1`` values per unit of violation.
        margin: ``sample_shape x 1`` distances below zero to aim at.
    """

    penalty: Tensor
    margin: Tensor

    def merit(self, value: Tensor, violation: Tensor) -> Tensor:
        """Add the price of violations to values.

        Args:
            value: ``sample_shape x n`` values.
            violation: ``sample_shape x n`` violations.

        Returns:
            The sums.
        """
        return value + self.penalty * (violation + self.margin).clamp_min(0.0)


class Front:
    """The local worst cases of a batch of functions, at points that move.

    Attributes:
        branches: The branches at the present points.
        other: Those at the previous, or rejected, points.
    """

    def __init__(
        self, solver: WorstCaseSolver, x: Tensor, theta: Tensor, num_branches: int
    ) -> None:
        """Find the branches at the first points.

        Args:
            solver: The search for the functions' worst cases.
            x: ``sample_shape x b x d_x`` points.
            theta: ``sample_shape x b x d_theta`` worst cases there.
            num_branches: The number of local worst cases to look for.
        """
        self.solver = solver
        self.num_branches = num_branches
        self.is_complete = solver.is_complete(num_branches)
        known = theta.unsqueeze(-2).expand(*theta.shape[:-1], NUM_FOLLOWED, -1)
        self.branches = self.other = solver.branches(x, num_branches, known)

    def models(self, x: Tensor) -> Branches:
        """The branches, and the worst case of the other points, in the free columns.

        Args:
            x: The present points.

        Returns:
            The branches.
        """
        bounds = self.branches
        if not self.is_complete:
            cuts = self.solver.hold(x, _highest(self.other, 1, self.other.theta))
            bounds = join([self.branches, cuts], dim=self.branches.value.ndim - 1)
        part = self.solver.domain.x
        return bounds if part.is_box else _in_columns(bounds, part.free)

    def moved(self, trial: Tensor, move: Tensor) -> Branches:
        """Find the branches at other points.

        Args:
            trial: ``sample_shape x b x d_x`` points.
            move: Their differences from the present points.

        Returns:
            The branches.
        """
        known = _follow(self.branches, move)
        return self.solver.branches(trial, self.num_branches, known)

    def accept(self, better: Tensor, new: Branches) -> None:
        """Go to the new points where they are better.

        Args:
            better: ``sample_shape x b`` booleans.
            new: The branches at the new points.
        """
        if not self.is_complete:
            self.other = where(better, self.branches, new)
        self.branches = where(better, new, self.branches)


def descend(
    problem: RobustProblem,
    found: ConstrainedOptimum,
    radius: Tensor,
    num_steps: int,
    price: Price,
) -> Tensor:
    """Move all starts to local minima of the worst case.

    Args:
        problem: The functions and their constraints.
        found: ``sample_shape x b`` starts with their worst cases.
        radius: ``d_free`` half-widths of the first trust region.
        num_steps: The number of steps.
        price: The price of violations.

    Returns:
        ``sample_shape x b x d_x`` points.
    """
    part = problem.objective.domain.x
    lower, upper = part.free_bounds
    # With two fewer, the search misses 4 % of rough functions in 2+1 columns.
    num_branches = max(4, len(part.free) + 2)
    x = found.x
    radius = radius.expand(*x.shape[:-1], -1)
    thetas = [found.theta, *found.constraint_theta.unbind(dim=-2)]
    fronts = [
        Front(solver, x, theta, num_branches)
        for solver, theta in zip(problem.solvers, thetas, strict=True)
    ]
    merit = _merit([front.branches for front in fronts], price)
    for _ in range(num_steps):
        free = part.free_of(x)
        low = torch.maximum(lower, free - radius)
        high = torch.minimum(upper, free + radius)
        models = [front.models(x) for front in fronts]
        limits = (part.free_of(part.normals), part.slack(x))
        moved = _model_minimum(free, models, low, high, *limits, price)
        trial = part.inward(part.combine(moved, part.listed_of(x)))
        new = [front.moved(trial, trial - x) for front in fronts]
        new_merit = _merit(new, price)
        better = new_merit < merit
        one = better.unsqueeze(-1)
        far = ((moved - free).abs() > NEARLY * radius).any(dim=-1, keepdim=True)
        grown = torch.where(far, GROWTH * radius, radius)
        radius = torch.where(one, grown, SHRINKAGE * radius)
        x = torch.where(one, trial, x)
        merit = torch.where(better, new_merit, merit)
        for front, branches in zip(fronts, new, strict=True):
            front.accept(better, branches)
    return x


def _merit(branches: Sequence[Branches], price: Price) -> Tensor:
    """The value of the highest branches and the price of their violations."""
    value, *constraints = (own.value.amax(dim=-1, keepdim=True) for own in branches)
    excess = torch.cat([value[..., :0], *constraints], dim=-1)
    return price.merit(value.squeeze(-1), largest_violation(excess))


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
    models: Sequence[Branches],
    low: Tensor,
    high: Tensor,
    normals: Tensor,
    slack: Tensor,
    price: Price,
) -> Tensor:
    """Minimise the largest of the branches' quadratic models over a box.

    The linear constraints have ``m x n`` normals, and a slack at ``x``.
    """
    width = high - low
    # Expand about the lower corner instead, in units of the box.
    move = (low - x).unsqueeze(-2)
    objective, *others = (_in_box(own, move, width) for own in models)
    slack = slack + move.squeeze(-2) @ normals.mT
    normals = normals * width.unsqueeze(-2)
    constraints, penalty = None, None
    if others:
        value, gradient, hessian = join(others, dim=objective.value.ndim - 1)
        value = value + price.margin.unsqueeze(-1)
        constraints = Quadratics(value, gradient, hessian)
        penalty = price.penalty.unsqueeze(-1)
    u = minimize_maximum(*objective, normals, slack, constraints, penalty)
    return torch.where(u >= 1.0, high, low + width * u)


def _in_box(branches: Branches, move: Tensor, width: Tensor) -> Quadratics:
    """The quadratic models about the lower corner of a box, in units of the box."""
    gradient, hessian = branches.gradient, branches.hessian
    bend = (hessian @ move.unsqueeze(-1)).squeeze(-1)
    value = branches.value + ((gradient + 0.5 * bend) * move).sum(dim=-1)
    gradient = (gradient + bend) * width.unsqueeze(-2)
    hessian = hessian * (width.unsqueeze(-1) * width.unsqueeze(-2)).unsqueeze(-3)
    return Quadratics(value, gradient, hessian)
