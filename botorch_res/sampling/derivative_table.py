r"""Values, gradients and Hessians of a batch of expansions, in closed form.

With ``p = w.u - e`` the derivatives of ``r cos(p)`` are ``-r sin(p) w`` and
``-r cos(p) w w^T``. For the kernels see the module of radial profiles: with
``m_j = v_j k2(|u - u_j|^2)``

    sum_j m_j (u - u_j) (u - u_j)^T
        = (sum_j m_j) u u^T - u (sum_j m_j u_j)^T - (...)^T + sum_j m_j u_j u_j^T.

In this form all weights, frequencies and centres are in small tables that are made
once. An evaluation makes large tensors, with one entry for each point and feature, but
only takes a cosine, a sine, a kernel and matrix products of them. The work is cut into
pieces of a few functions, not of a few points, because every function has its own
tables.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from botorch_res.models.radial import radial_derivatives, squared_distance
from botorch_res.sampling import memory
from botorch_res.sampling.batch_function import Derivatives

if TYPE_CHECKING:
    from botorch_res.sampling.expansion import Expansion


class Tables(NamedTuple):
    """Tables of the functions that do not depend on the points.

    The first dimension is that of a model's samples, or one if all samples share it.

    Attributes:
        frequencies: ``1 x batch_shape x d x F`` frequencies ``w``.
        angles: ``sample_shape x 1 x F`` angles ``e``.
        offset: ``sample_shape x 1`` constants.
        cosines: ``sample_shape x F x (1 + k * k)`` factors of cosines.
        sines: ``sample_shape x F x k`` factors of sines.
        centers: ``1 x batch_shape x t x d`` centres ``u_j`` of the kernels.
        half_norms: ``1 x batch_shape x 1 x t``, minus half of their squared norms.
        kernels: ``sample_shape x t x (1 + k + k * k)`` factors of the kernels.
        slope: ``1 x batch_shape x 1 x k`` derivatives of the scaled columns.
        metric: ``1 x batch_shape x 1 x k x k`` products of these derivatives, for pairs
            that are one and the same column; zero for others.
    """

    frequencies: Tensor
    angles: Tensor
    offset: Tensor
    cosines: Tensor
    sines: Tensor
    centers: Tensor
    half_norms: Tensor
    kernels: Tensor
    slope: Tensor
    metric: Tensor

    def narrow(self, start: int, stop: int) -> Tables:
        """Select the tables of some of the functions.

        Args:
            start: The first function, along the first dimension.
            stop: The first function after the selected ones.

        Returns:
            The tables of these functions.
        """
        return Tables(*(t if len(t) == 1 else t[start:stop] for t in self))


class DerivativeTable:
    """Derivatives of ``sample_shape`` expansions by fixed columns."""

    def __init__(self, expansion: Expansion, columns: Tensor, slope: Tensor) -> None:
        """Make the tables.

        Args:
            expansion: The functions.
            columns: The indices of the ``k`` columns to differentiate by, which may
                repeat.
            slope: ``batch_shape x 1 x d`` derivative of each scaled column by the
                user's column.
        """
        self.expansion = expansion
        self.columns = columns
        slope = slope.index_select(-1, columns).unsqueeze(0)
        frequencies = expansion.frequencies.unsqueeze(0)
        amplitude = expansion.amplitudes.unsqueeze(-1)
        rates = slope * frequencies.index_select(-1, columns)
        centers = expansion.centers.unsqueeze(0)
        center = slope * centers.index_select(-1, columns)
        products = [torch.ones_like(center[..., :1]), center, _outer(center)]
        weights = expansion.kernel_weights.unsqueeze(-1)
        self.tables = Tables(
            frequencies=frequencies.mT.contiguous(),
            angles=expansion.angles.unsqueeze(-2),
            offset=expansion.offset.unsqueeze(-1),
            cosines=torch.cat([amplitude, -amplitude * _outer(rates)], dim=-1),
            sines=-amplitude * rates,
            centers=centers,
            half_norms=-0.5 * centers.square().sum(dim=-1).unsqueeze(-2),
            kernels=weights * torch.cat(products, dim=-1),
            slope=slope,
            metric=_outer(slope).unflatten(-1, (len(columns), len(columns)))
            * (columns.unsqueeze(-1) == columns),
        )

    def __call__(self, z: Tensor) -> Derivatives:
        """Evaluate the functions and their derivatives.

        Args:
            z: Points that broadcast with ``sample_shape x n x d``.

        Returns:
            The values and derivatives, detached from any graph.
        """
        if self.expansion.accepts(z):
            z = z.expand(*self.expansion.sample_shape, *z.shape[-2:])
        with torch.no_grad():
            u = self.expansion.scaled(z)
            features = self.tables.angles.shape[-1] + self.tables.centers.shape[-2]
            others = self.expansion.sample_shape[1:].numel()
            points = max(1, memory.piece_size(z.device) // (features * others))
            count = max(1, points // max(1, u.shape[-2]))
            rows = max(1, points // count)
            parts = []
            for start in range(0, len(u), count):
                tables = self.tables.narrow(start, start + count)
                chunks = u[start : start + count].split(rows, dim=-2)
                parts.append(_join([self._evaluate(c, tables) for c in chunks], True))
            return _join(parts, False)

    def _evaluate(self, u: Tensor, tables: Tables) -> Derivatives:
        """Evaluate one piece."""
        k = len(self.columns)
        phase = (u @ tables.frequencies).sub_(tables.angles)
        value, hessian = (phase.cos() @ tables.cosines).split([1, k * k], dim=-1)
        value = tables.offset + value.squeeze(-1)
        gradient = phase.sin_() @ tables.sines
        hessian = hessian.unflatten(-1, (k, k))
        if tables.centers.shape[-2] == 0:
            return Derivatives(value, gradient, hessian)
        kernels = self._kernels(u, tables)
        return Derivatives(
            value + kernels.value,
            gradient + kernels.gradient,
            hessian + kernels.hessian,
        )

    def _kernels(self, u: Tensor, tables: Tables) -> Derivatives:
        """Compute the kernels' part of the derivatives."""
        k = len(self.columns)
        table, smoothness = tables.kernels, self.expansion.smoothness
        if math.isinf(smoothness):  # k0 = k2 = -k1: one product serves all
            norms = 0.5 * u.square().sum(dim=-1, keepdim=True)
            k2 = (u @ tables.centers.mT + tables.half_norms - norms).exp()
            total2, moment2, square = (k2 @ table).split([1, k, k * k], dim=-1)
            total0, total1, moment1 = total2, -total2, -moment2
        else:
            distance = squared_distance(u, tables.centers, smoothness)
            k0, k1, k2 = radial_derivatives(distance, smoothness)
            total0 = k0 @ table[..., :1]
            total1, moment1 = (k1 @ table[..., : 1 + k]).split([1, k], dim=-1)
            total2, moment2, square = (k2 @ table).split([1, k, k * k], dim=-1)
        point = tables.slope * u.index_select(-1, self.columns)
        mixed = point.unsqueeze(-1) * (moment2 - 0.5 * total2 * point).unsqueeze(-2)
        hessian = square.unflatten(-1, (k, k)) - mixed - mixed.mT
        hessian.add_(total1.unsqueeze(-1) * tables.metric)
        return Derivatives(total0.squeeze(-1), total1 * point - moment1, hessian)


def _join(parts: list[Derivatives], along_points: bool) -> Derivatives:
    """Put the pieces together again."""
    if len(parts) == 1:
        return parts[0]
    axes = (-1, -2, -3) if along_points else (0, 0, 0)
    pieces = zip(*parts, strict=True)
    return Derivatives(
        *(torch.cat(piece, dim) for piece, dim in zip(pieces, axes, strict=True))
    )


def _outer(rows: Tensor) -> Tensor:
    """Multiply all pairs of columns."""
    return (rows.unsqueeze(-1) * rows.unsqueeze(-2)).flatten(-2)
