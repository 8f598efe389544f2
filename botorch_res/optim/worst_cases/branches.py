r"""How local worst cases move with ``x``.

A branch is a local worst case as a function of ``x``. Its value follows the envelope
theorem, and its location the implicit function theorem,

    dh/dx = -(d2f/dtheta2)^-1 d2f/(dtheta dx)

for the coordinates of theta that are not at a bound. The others do not move.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from botorch_res.optim.worst_cases.newton import solve_modified
from botorch_res.sampling import Derivatives


class Branches(NamedTuple):
    """Local worst cases ``theta_k(x)`` and their values as functions of ``x``.

    Attributes:
        theta: ``sample_shape x b x k x d_theta`` local worst cases.
        value: ``sample_shape x b x k`` values.
        gradient: ``sample_shape x b x k x d_x`` gradients of the values by ``x``.
        hessian: ``sample_shape x b x k x d_x x d_x`` Hessians of the values by ``x``.
        shift: ``sample_shape x b x k x d_theta x d_x`` derivatives of ``theta`` by
            ``x``.
    """

    theta: Tensor
    value: Tensor
    gradient: Tensor
    hessian: Tensor
    shift: Tensor

    def scaled(self, lower: Tensor, width: Tensor) -> Branches:
        """Convert from the unit cube to the box that it stands for.

        Args:
            lower: ``d_theta`` lower bounds of the box.
            width: ``d_theta`` widths of the box.

        Returns:
            The branches in units of the box.
        """
        return self._replace(
            theta=lower + width * self.theta, shift=width.unsqueeze(-1) * self.shift
        )


def move_with_x(theta: Tensor, state: Derivatives, movable: Tensor) -> Branches:
    """Eliminate theta from the derivatives at local worst cases.

    Args:
        theta: ``sample_shape x b x k x d_theta`` points of the unit cube.
        state: Value and derivatives there, by ``x`` and then theta.
        movable: ``sample_shape x b x k`` booleans: which thetas are local worst cases
            and move with ``x``. The others stay fixed.

    Returns:
        The branches, in units of the cube.
    """
    value, gradient, hessian = state
    n = gradient.shape[-1] - theta.shape[-1]
    mixed, square = hessian[..., n:, :n], hessian[..., n:, n:]
    free = _free(theta, gradient[..., n:]) & movable.unsqueeze(-1)
    free = free.to(theta.dtype).unsqueeze(-1)
    identity = torch.diag_embed(1.0 - free.squeeze(-1))
    shift = solve_modified(identity - free * square * free.mT, free * mixed)
    curvature = hessian[..., :n, :n] + mixed.mT @ shift
    return Branches(theta, value, gradient[..., :n], curvature, shift)


def _free(theta: Tensor, gradient: Tensor) -> Tensor:
    """Tell which coordinates of worst cases in the unit cube are not at a bound."""
    # A step to a bound may miss it by a few roundings.
    near = 8.0 * torch.finfo(theta.dtype).eps
    low, high = theta <= near, theta >= 1.0 - near
    return ~((low & (gradient <= 0)) | (high & (gradient >= 0)))
