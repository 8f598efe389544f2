r"""Many local searches for a maximum in the unit cube, by Newton's method at once.

Each climber takes Newton's step for its own quadratic model, within the cube and within
a trust region, and goes there only if it gets higher. The trust region shrinks when it
does not. The number of steps is fixed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from botorch_res.optim.newton import box_newton_step
from botorch_res.sampling import Derivatives

# Such a step in the unit cube changes values by rounding errors only, and whether it
# is accepted says nothing about the model.
TINY_STEP = 1e-7


class Climbers(NamedTuple):
    """The state of many Newton searches in the unit cube.

    Attributes:
        theta: ``... x k x d_theta`` points.
        value: ``... x k`` values.
        gradient: ``... x k x d_theta`` gradients, or ``... x k x d`` with those by
            ``x`` in front.
        hessian: The Hessians, of the same columns.
        radius: ``... x k x d_theta`` largest steps.
        step: ``... x k x d_theta`` next steps.
        gain: ``... x k`` what the next step promises.
    """

    theta: Tensor
    value: Tensor
    gradient: Tensor
    hessian: Tensor
    radius: Tensor
    step: Tensor
    gain: Tensor

    def select(self, index: Tensor) -> Climbers:
        """Keep some climbers of each group.

        Args:
            index: ``... x m`` positions in the groups.

        Returns:
            The ``... x m`` climbers.
        """
        flat = self.value.ndim
        return Climbers(
            *(
                part.take_along_dim(
                    index.reshape(*index.shape, *[1] * (part.ndim - flat)),
                    dim=flat - 1,
                )
                for part in self
            )
        )


def aim(theta: Tensor, state: Derivatives, radius: Tensor) -> Climbers:
    """Choose the next Newton step in the unit cube.

    Args:
        theta: ``... x d_theta`` points.
        state: Value and derivatives at these points; the last columns are theta's.
        radius: ``... x d_theta`` largest steps, or broadcasts with it.

    Returns:
        Climbers at these points.
    """
    dim = theta.shape[-1]
    gradient, hessian = state.gradient[..., -dim:], state.hessian[..., -dim:, -dim:]
    lower = torch.maximum(-theta, -radius)
    upper = torch.minimum(1.0 - theta, radius)
    step = box_newton_step(gradient, hessian, lower, upper)
    curved = (hessian @ step.unsqueeze(-1)).squeeze(-1)
    gain = (step * (gradient + 0.5 * curved)).sum(dim=-1)
    return Climbers(theta, *state, radius.expand(theta.shape), step, gain)


def climb(
    derivatives: Callable[[Tensor], Derivatives], climbers: Climbers, num_steps: int
) -> Climbers:
    """Let climbers go up, never down.

    Args:
        derivatives: Value and derivatives at ``... x k x d_theta`` points of the unit
            cube; the last columns are theta's.
        climbers: ``... x k`` climbers.
        num_steps: The number of steps.

    Returns:
        The climbers at the end.
    """
    for _ in range(num_steps):
        trial = (climbers.theta + climbers.step).clamp(0.0, 1.0)
        new = derivatives(trial)
        better = new.value > climbers.value
        one = better.unsqueeze(-1)
        state = Derivatives(
            torch.where(better, new.value, climbers.value),
            torch.where(one, new.gradient, climbers.gradient),
            torch.where(one.unsqueeze(-1), new.hessian, climbers.hessian),
        )
        theta = torch.where(one, trial, climbers.theta)
        shrunk = (0.25 * climbers.step.abs()).clamp_min(TINY_STEP)
        radius = torch.where(one, climbers.radius, shrunk)
        climbers = aim(theta, state, radius)
    return climbers
