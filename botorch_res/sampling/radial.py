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
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

# Squared distances are not resolved below the square of this.
SMALLEST_DISTANCE = 1e-8


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


def radial_value(distance: Tensor, smoothness: float) -> Tensor:
    """The correlation ``k0``.

    Args:
        distance: Squared distances.
        smoothness: Matern's ``nu``, infinite for the squared exponential.

    Returns:
        Correlations, of the same shape.
    """
    if math.isinf(smoothness):
        return torch.exp(-0.5 * distance)
    r = _scaled_root(distance, smoothness)
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
        value = torch.exp(-0.5 * distance)
        return value, -value, value
    r = _scaled_root(distance, smoothness)
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


def _scaled_root(distance: Tensor, smoothness: float) -> Tensor:
    """The square root of ``2 nu s``, bounded away from zero.

    Args:
        distance: Squared distances ``s``.
        smoothness: Matern's ``nu``.

    Returns:
        Scaled distances.
    """
    scaled = 2.0 * smoothness * distance
    return scaled.clamp_min(SMALLEST_DISTANCE**2).sqrt()
