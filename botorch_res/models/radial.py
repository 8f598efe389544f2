r"""Radial profiles of the squared exponential and Matern kernels, with derivatives.

In units of the lengthscales a stationary kernel is a function of the squared distance
``s = |u|^2`` with ``u = z - z'``. Its derivatives by ``z`` are

    gradient = k1(s) u,        Hessian = k1(s) I + k2(s) u u^T.

With ``r = sqrt(2 nu s)`` the triple ``(k0, k1, k2)`` is

    squared exponential   exp(-s / 2) (1, -1, 1)
    nu = 5/2              exp(-r) (1 + r + r^2 / 3, -5/3 (1 + r), 25/3)
    nu = 3/2              exp(-r) (1 + r, -3, 9 / r)
    nu = 1/2              exp(-r) (1, -1 / r, (1 + 1 / r) / r^2)

For ``nu = 1/2`` the kernel has a cusp at distance zero and no derivative there; the
lower bound on ``r`` below makes the derivatives large and finite, and a Newton step
that starts in a cusp ends in it.

The Matern kernels are one family: ``k0`` is ``p_m(r) exp(-r)`` with ``m = nu - 1/2``
and ``p_0 = 1``, ``p_1 = 1 + r``, ``p_2 = 1 + r + r^2 / 3``. The derivative with respect
to ``r^2`` is that of the next rougher kernel: ``-1/6`` of it for ``m = 2``, ``-1/2`` of
it for ``m = 1``, and ``-1/(2 r)`` of itself for ``m = 0``.

Each function takes the sum of ``nu = 5/2`` in an order of its own. They differ by
rounding, and searches for worst cases magnify that: one common order changes gradients
by up to 3e-7.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

# Derivatives do not resolve distances below this.
_SMALLEST_DISTANCE = 1e-8


def squared_distance(points: Tensor, centers: Tensor, smoothness: float) -> Tensor:
    """Squared Euclidean distances of all pairs.

    Args:
        points: ``... x n x d`` points.
        centers: ``... x t x d`` points.
        smoothness: Matern's ``nu``, infinite for the squared exponential. The rough
            kernels feel the cancellation of the expanded square, and get the
            differences themselves.

    Returns:
        ``... x n x t`` squared distances.
    """
    if not math.isinf(smoothness):
        return (points.unsqueeze(-2) - centers.unsqueeze(-3)).square().sum(dim=-1)
    norms = (
        points.square().sum(-1, keepdim=True) + centers.square().sum(-1)[..., None, :]
    )
    return (norms - 2.0 * points @ centers.mT).clamp_min(0.0)


def profile(
    scaled_distance: Tensor, smoothness: float, variance: Tensor | None = None
) -> Tensor:
    """The covariance as a function of the squared distance; differentiable twice.

    Args:
        scaled_distance: Squared distances: ``s`` for the squared exponential, and
            ``r^2 = 2 nu s`` for a Matern kernel.
        smoothness: Matern's ``nu``, infinite for the squared exponential.
        variance: The variance of the prior, which is not differentiated; one if
            ``None``.

    Returns:
        Covariances, of the same shape.
    """
    if math.isinf(smoothness):
        values = torch.exp(-0.5 * scaled_distance)
        return values if variance is None else variance * values
    no_scale = scaled_distance.new_zeros(())
    covariance: Tensor = _MaternProfile.apply(  # type: ignore[no-untyped-call]
        scaled_distance,
        no_scale if variance is None else variance.log(),
        round(smoothness - 0.5),
    )
    return covariance


def radial_value(distance: Tensor, smoothness: float) -> Tensor:
    """The correlation ``k0``.

    Args:
        distance: Squared distances.
        smoothness: Matern's ``nu``, infinite for the squared exponential.

    Returns:
        Correlations, of the same shape.
    """
    if math.isinf(smoothness):
        return profile(distance, smoothness)
    r = _root(2.0 * smoothness * distance, _SMALLEST_DISTANCE**2)
    decay = torch.exp(-r)
    if smoothness == 2.5:
        return torch.addcmul(decay, decay * r, 1.0 + r / 3.0)
    return (1.0 + r) * decay if smoothness == 1.5 else decay


def radial_derivatives(
    distance: Tensor, smoothness: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The triple ``k0, k1, k2`` of the module's docstring.

    Args:
        distance: Squared distances.
        smoothness: Matern's ``nu``, infinite for the squared exponential.

    Returns:
        Three tensors of the same shape.
    """
    if math.isinf(smoothness):
        value = profile(distance, smoothness)
        return value, -value, value
    r = _root(2.0 * smoothness * distance, _SMALLEST_DISTANCE**2)
    decay = torch.exp(-r)
    if smoothness == 2.5:
        return (
            (1.0 + r + r.square() / 3.0) * decay,
            (-5.0 / 3.0) * (1.0 + r) * decay,
            (25.0 / 3.0) * decay,
        )
    if smoothness == 1.5:
        return (1.0 + r) * decay, -3.0 * decay, 9.0 * decay / r
    return decay, -decay / r, (1.0 + 1.0 / r) / r.square() * decay


class _MaternProfile(torch.autograd.Function):
    """Matern covariances ``variance p_m(r) exp(-r)`` as functions of ``r^2``.

    This takes half of the passes over memory that autograd would, and no root whose
    derivative is infinite; it may be differentiated again.
    """

    @staticmethod
    def forward(
        ctx: Any, squared_distance: Tensor, log_variance: Tensor, order: int
    ) -> Tensor:
        """Evaluate; rounding may have left the squared distance below zero."""
        ctx.save_for_backward(squared_distance, log_variance)
        ctx.order = order
        # Covariances do not feel this bound.
        r = _root(squared_distance, torch.finfo(squared_distance.dtype).tiny)
        decay = torch.sub(log_variance, r).exp_()
        return _matern(r, squared_distance, decay, order)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        """Turn the gradient of the covariances into that of the squared distances."""
        squared_distance, log_variance = ctx.saved_tensors
        rougher = _MaternProfile.apply(  # type: ignore[no-untyped-call]
            squared_distance, log_variance, max(ctx.order - 1, 0)
        )
        if ctx.order == 0:
            least = torch.finfo(squared_distance.dtype).tiny
            rougher = rougher / _root(squared_distance, least)
        return gradient * rougher * (-1.0 / 6.0 if ctx.order == 2 else -0.5), None, None


def _matern(r: Tensor, squared: Tensor, decay: Tensor, order: int) -> Tensor:
    """The Matern kernel ``p_m(r) decay``."""
    if order == 0:
        return decay
    if order == 1:
        return (1.0 + r).mul_(decay)
    return torch.add(r, squared, alpha=1.0 / 3.0).add_(1.0).mul_(decay)


def _root(squared: Tensor, least: float) -> Tensor:
    """The square root of squared distances, each at least ``least``."""
    return squared.clamp_min(least).sqrt_()
