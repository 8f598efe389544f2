r"""A function to be minimised in its worst case, with constraints that hold in theirs.

    min over x of max over theta of f(x, theta)
    subject to max over theta of c_j(x, theta) <= 0 for all j.

Every function has a search for its own worst cases. Without constraints this is the
plain robust optimum.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import torch
from botorch.exceptions.errors import BotorchTensorDimensionError
from torch import Tensor
from torch.nn.functional import pad

from botorch_res.domain import DomainPart
from botorch_res.optim.tuples import select
from botorch_res.optim.worst_cases.solver import WorstCaseSolver


class ConstrainedOptimum(NamedTuple):
    """Robust optima of ``sample_shape`` functions under ``J`` constraints.

    If a function has no feasible ``x``, its optimum is the ``x`` with the smallest
    violation.

    Attributes:
        x: ``sample_shape x d_x``, the paper's ``x*``.
        theta: ``sample_shape x d_theta``, the worst case there.
        value: ``sample_shape``, the paper's ``f*``.
        constraint_theta: ``sample_shape x J x d_theta``, the worst case of each
            constraint at ``x``.
        constraint_value: ``sample_shape x J``, the constraints' values there.
    """

    x: Tensor
    theta: Tensor
    value: Tensor
    constraint_theta: Tensor
    constraint_value: Tensor

    @property
    def violation(self) -> Tensor:
        """The largest value of a constraint, minus infinity if there are none."""
        return largest_violation(self.constraint_value)

    @property
    def is_feasible(self) -> Tensor:
        """Whether all constraints hold in the worst case, ``sample_shape``."""
        return self.violation <= 0.0

    @property
    def critical_theta(self) -> Tensor:
        """The theta to watch, ``sample_shape x d_theta``.

        It is the worst case of the function. If ``x`` is not feasible, it is that of
        the constraint that is violated most.
        """
        if self.constraint_value.shape[-1] == 0:
            return self.theta
        most = self.constraint_value.argmax(dim=-1)[..., None, None]
        other = self.constraint_theta.take_along_dim(most, dim=-2).squeeze(-2)
        return torch.where(self.is_feasible.unsqueeze(-1), self.theta, other)


def largest_violation(constraint_value: Tensor) -> Tensor:
    """The largest value of a constraint, minus infinity if there are none.

    Args:
        constraint_value: ``... x J`` values.

    Returns:
        ``...`` values.
    """
    return pad(constraint_value, (1, 0), value=-torch.inf).amax(dim=-1)


def best_of(found: ConstrainedOptimum) -> ConstrainedOptimum:
    """Select the best of ``sample_shape x n`` points.

    Args:
        found: The points.

    Returns:
        The feasible point with the smallest value. If there is none, the point with the
        smallest violation.
    """
    feasible = found.is_feasible
    value = torch.where(feasible, found.value, torch.inf)
    order = torch.where(
        feasible.any(dim=-1, keepdim=True), value, found.violation.clamp_min(0.0)
    )
    best = select(found, order.argmin(dim=-1, keepdim=True))
    axis = order.ndim - 1
    return ConstrainedOptimum(*(part.squeeze(axis) for part in best))


class RobustProblem:
    """Batches of functions and constraints, all of the same ``sample_shape``.

    Attributes:
        objective: The search for the worst cases of the function.
        constraints: Those for the worst cases of the constraints.
    """

    def __init__(
        self, objective: WorstCaseSolver, constraints: Sequence[WorstCaseSolver] = ()
    ) -> None:
        """Store the searches.

        Args:
            objective: The search for the worst cases of the function.
            constraints: Those for the worst cases of the constraints, all in the same
                domain.
        """
        self.objective = objective
        self.constraints = list(constraints)
        shape = objective.functions.sample_shape
        for constraint in self.constraints:
            if constraint.functions.sample_shape != shape:
                raise BotorchTensorDimensionError(
                    f"Expected `constraints` of the function's sample_shape "
                    f"{tuple(shape)}, got "
                    f"{tuple(constraint.functions.sample_shape)}."
                )

    @property
    def solvers(self) -> list[WorstCaseSolver]:
        """All searches, that of the function first."""
        return [self.objective, *self.constraints]

    def __call__(self, x: Tensor) -> ConstrainedOptimum:
        """Find the worst cases of all functions.

        Args:
            x: Controllable parts that broadcast with ``sample_shape x b x d_x``.

        Returns:
            The points ``sample_shape x b`` with their worst cases.
        """
        worst = self.objective(x)
        others = [constraint(x) for constraint in self.constraints]
        none = worst.theta.unsqueeze(-2)[..., :0, :], worst.value.unsqueeze(-1)[..., :0]
        thetas = [none[0], *(own.theta.unsqueeze(-2) for own in others)]
        values = [none[1], *(own.value.unsqueeze(-1) for own in others)]
        return ConstrainedOptimum(
            x.expand(*worst.value.shape, -1),
            *worst,
            torch.cat(thetas, dim=-2),
            torch.cat(values, dim=-1),
        )

    def lengthscale(self, part: DomainPart) -> Tensor | None:
        """Get the shortest lengthscales in the free columns of a part of the domain.

        Args:
            part: The part.

        Returns:
            The lengthscales, or ``None`` if those of a function are unknown.
        """
        scales = [solver.lengthscale(part) for solver in self.solvers]
        known = [scale for scale in scales if scale is not None]
        return None if len(known) < len(scales) else reduce(torch.minimum, known)

    def lower_bound(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Bound the worst cases from below by the largest values on the search's grids.

        Args:
            x: ``b x d_x`` or ``sample_shape x b x d_x`` controllable parts.

        Returns:
            ``sample_shape x b`` worst cases and violations.
        """
        value = self.objective.lower_bound(x)
        others = [constraint.lower_bound(x) for constraint in self.constraints]
        none = value.unsqueeze(-1)[..., :0]
        return value, largest_violation(
            torch.cat([none, *(own.unsqueeze(-1) for own in others)], dim=-1)
        )
