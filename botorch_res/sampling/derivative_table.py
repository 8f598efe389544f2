r"""Values, gradients and Hessians of a batch of expansions, in closed form.

With ``p = w.u - e`` the derivatives of ``r cos(p)`` are ``-r sin(p) w`` and
``-r cos(p) w w^T``. For the kernels see the module of radial profiles: with
``m_j = v_j k2(|u - u_j|^2)``

    sum_j m_j (u - u_j) (u - u_j)^T
        = (sum_j m_j) u u^T - u (sum_j m_j u_j)^T - (...)^T + sum_j m_j u_j u_j^T.

In this form all weights, frequencies and centres are in small tables that are made
once, and the large tensors of an evaluation, with one entry for each point and feature,
see nothing but a cosine, a sine, a kernel and matrix products.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from botorch_res.sampling import function as base
from botorch_res.sampling.function import Derivatives
from botorch_res.sampling.radial import radial_derivatives, squared_distance

if TYPE_CHECKING:
    from botorch_res.sampling.expansion import Expansion


class DerivativeTable:
    """Derivatives of ``sample_shape`` expansions by fixed columns."""

    def __init__(self, expansion: Expansion, columns: Tensor, slope: Tensor) -> None:
        """Make the tables.

        Args:
            expansion: The functions.
            columns: The indices of the ``k`` columns to differentiate by.
            slope: ``batch_shape x 1 x d`` derivative of each scaled column by the
                user's column.
        """
        self.expansion = expansion
        self.columns = columns
        slope = slope.index_select(-1, columns).unsqueeze(-3)
        self.slope, self.square_slope = slope, slope.square()
        frequencies = expansion.frequencies.unsqueeze(-3)
        amplitude = expansion.amplitudes.unsqueeze(-1)
        rates = slope * frequencies.index_select(-1, columns)
        self.frequencies = frequencies.mT.contiguous()
        self.angles = expansion.angles.unsqueeze(-2)
        self.cosine_table = torch.cat([amplitude, -amplitude * _outer(rates)], dim=-1)
        self.sine_table = -amplitude * rates
        self.centers = expansion.centers.unsqueeze(-3)
        self.half_norms = -0.5 * self.centers.square().sum(dim=-1).unsqueeze(-2)
        weights = expansion.kernel_weights.unsqueeze(-1)
        center = slope * self.centers.index_select(-1, columns)
        products = [torch.ones_like(center[..., :1]), center, _outer(center)]
        self.kernel_table = weights * torch.cat(products, dim=-1)

    def __call__(self, z: Tensor) -> Derivatives:
        """Evaluate the functions and their derivatives.

        Args:
            z: ``sample_shape x n x d`` points, each function its own.

        Returns:
            The values and derivatives, detached from any graph.
        """
        features = self.frequencies.shape[-1] + self.centers.shape[-2]
        points = features * self.expansion.sample_shape.numel()
        rows = max(1, base.piece_size(z.device) // points)
        with torch.no_grad():
            parts = [self._evaluate(part) for part in z.split(rows, dim=-2)]
        if len(parts) == 1:
            return parts[0]
        pieces = zip(*parts, strict=True)
        return Derivatives(
            *(torch.cat(p, dim) for p, dim in zip(pieces, (-1, -2, -3), strict=True))
        )

    def _evaluate(self, z: Tensor) -> Derivatives:
        """Evaluate one chunk of points.

        Args:
            z: ``sample_shape x n x d`` points, each function its own.

        Returns:
            The values and derivatives.
        """
        k = len(self.columns)
        u = self.expansion.scaled(z)
        phase = (u @ self.frequencies).sub_(self.angles)
        value, hessian = (phase.cos() @ self.cosine_table).split([1, k * k], dim=-1)
        value = self.expansion.offset.unsqueeze(-1) + value.squeeze(-1)
        gradient = phase.sin_() @ self.sine_table
        hessian = hessian.unflatten(-1, (k, k))
        if self.centers.shape[-2] == 0:
            return Derivatives(value, gradient, hessian)
        kernels = self._kernels(u)
        return Derivatives(
            value + kernels.value,
            gradient + kernels.gradient,
            hessian + kernels.hessian,
        )

    def _kernels(self, u: Tensor) -> Derivatives:
        """The kernels' part of the derivatives.

        Args:
            u: ``sample_shape x n x d`` scaled points.

        Returns:
            Values and derivatives.
        """
        k = len(self.columns)
        table, smoothness = self.kernel_table, self.expansion.smoothness
        if math.isinf(smoothness):  # k0 = k2 = -k1: one product serves all
            norms = 0.5 * u.square().sum(dim=-1, keepdim=True)
            k2 = (u @ self.centers.mT + self.half_norms - norms).exp()
            total2, moment2, square = (k2 @ table).split([1, k, k * k], dim=-1)
            total0, total1, moment1 = total2, -total2, -moment2
        else:
            distance = squared_distance(u, self.centers, smoothness)
            k0, k1, k2 = radial_derivatives(distance, smoothness)
            total0 = k0 @ table[..., :1]
            total1, moment1 = (k1 @ table[..., : 1 + k]).split([1, k], dim=-1)
            total2, moment2, square = (k2 @ table).split([1, k, k * k], dim=-1)
        point = self.slope * u.index_select(-1, self.columns)
        mixed = point.unsqueeze(-1) * (moment2 - 0.5 * total2 * point).unsqueeze(-2)
        hessian = square.unflatten(-1, (k, k)) - mixed - mixed.mT
        hessian.diagonal(dim1=-2, dim2=-1).add_(total1 * self.square_slope)
        return Derivatives(total0.squeeze(-1), total1 * point - moment1, hessian)


def _outer(rows: Tensor) -> Tensor:
    """The products of all pairs of columns.

    Args:
        rows: ``... x n x k`` tensor.

    Returns:
        ``... x n x k^2`` products.
    """
    return (rows.unsqueeze(-1) * rows.unsqueeze(-2)).flatten(-2)
