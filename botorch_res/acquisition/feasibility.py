r"""What a sample says about a setting, depending on whether it is robustly feasible.

If all constraints of the sample hold there in the worst case, the worst case of its
objective is at least the optimal value. If not, the worst case of the constraint that
it violates most is at least zero, and nothing is known of the objective. If a sample
has no feasible setting, the worst case of the constraint that is violated most is at
least the smallest violation ``u``, everywhere.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from botorch_res.acquisition.targets import Intervals
from botorch_res.optim import ConstrainedOptimum


def least_values(optimum: ConstrainedOptimum) -> list[Tensor]:
    """What the worst case of each channel reaches, where anything is known of it.

    Args:
        optimum: The optima of ``C x batch_shape`` samples.

    Returns:
        ``C x batch_shape`` values: ``f*``, and ``u`` for each constraint, which is zero
        if the sample has a feasible setting.
    """
    violation = optimum.violation.clamp_min(0.0)
    num_constraints = optimum.constraint_value.shape[-1]
    return [optimum.value, *[violation] * num_constraints]


def known_at(
    optimum: ConstrainedOptimum, constraint_value: Tensor, inside: Tensor
) -> list[Tensor]:
    """What the worst cases at settings reach at least.

    Args:
        optimum: The optima of ``C x batch_shape`` samples.
        constraint_value: ``C x batch_shape x n x J`` worst cases of the constraints.
        inside: ``n`` or more booleans: whether the settings are in the domain. Those
            outside obey nothing.

    Returns:
        For the objective and each constraint ``C x batch_shape x n`` values, minus
        infinity where nothing is known.
    """
    can_be = optimum.is_feasible.unsqueeze(-1)
    is_met = can_be & (constraint_value <= 0.0).all(dim=-1)
    known = [is_met]
    if constraint_value.shape[-1]:
        most = constraint_value.argmax(dim=-1)
        known += [~is_met & (most == j) for j in range(constraint_value.shape[-1])]
    return [
        torch.where(inside & own, least.unsqueeze(-1), -math.inf)
        for own, least in zip(known, least_values(optimum), strict=True)
    ]


def shares(
    optimum: ConstrainedOptimum, constraint_value: Tensor, widths: list[Tensor]
) -> list[Tensor] | None:
    """Weights of what is known at settings, which change continuously with these.

    Something is known of one channel only: of the objective if the setting is feasible,
    and otherwise of the constraint that is violated most. Where this changes, the
    weights shift from one to the other. For feasible settings, that of the objective is
    one.

    Args:
        optimum: The optima of ``C x batch_shape`` samples.
        constraint_value: ``C x batch_shape x n x J`` worst cases of the constraints.
        widths: ``batch_shape x n`` differences below which the values of each
            constrained output tie.

    Returns:
        For the objective and each constraint ``C x batch_shape x n`` weights, or
        ``None`` if there are no constraints.
    """
    if constraint_value.shape[-1] == 0:
        return None
    width = torch.stack(widths, dim=-1).amax(dim=-1, keepdim=True)
    can_be = optimum.is_feasible[..., None, None]
    # At a violation of this width the two weights are equal.
    met = torch.where(can_be, width, -math.inf).expand(*constraint_value.shape[:-1], 1)
    level = torch.cat([met, constraint_value], dim=-1)
    gap = (level.amax(dim=-1, keepdim=True) - level) / width
    weight = (1.0 - gap.clamp_max(1.0)).square()
    return list((weight / weight.sum(dim=-1, keepdim=True)).unbind(dim=-1))


def valid_at_optimum(
    intervals: Intervals, optimum: ConstrainedOptimum, is_objective: bool
) -> Intervals:
    """Leave out what a target says at the optimum and what the sample does not say.

    The optimum of a sample without a feasible setting says nothing of the objective.
    If there is one, its constraints are at most zero, but need not be zero.

    Args:
        intervals: ``C x batch_shape x k`` bounds of the local worst cases.
        optimum: The optima of ``C x batch_shape`` samples.
        is_objective: Whether they are those of the objective, or of a constraint.

    Returns:
        The bounds that hold.
    """
    feasible = optimum.is_feasible.unsqueeze(-1)
    lower, upper = intervals
    if is_objective:
        return Intervals(
            torch.where(feasible, lower, -math.inf),
            torch.where(feasible, upper, math.inf),
        )
    return Intervals(torch.where(feasible, -math.inf, lower), upper)


def stacked(values: list[Tensor], like: Tensor, dim: int = -1) -> Tensor:
    """Stack the values of the constraints, of which there may be none.

    Args:
        values: A list of tensors.
        like: A tensor of the same shape.
        dim: The new dimension.

    Returns:
        The stack, of length zero if the list is empty.
    """
    if values:
        return torch.stack(values, dim=dim)
    return like.unsqueeze(dim).narrow(dim, 0, 0)
