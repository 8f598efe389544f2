r"""Values, gradients and Hessians of a batch of expansions, in closed form.

With ``p = w.u - e`` the derivatives of ``r cos(p)`` are ``-r sin(p) w`` and
``-r cos(p) w w^T``. For the kernels see the module of radial profiles: with
``m_j = v_j k2(|u - u_j|^2)``

    sum_j m_j (u - u_j) (u - u_j)^T
        = (sum_j m_j) u u^T - u (sum_j m_j u_j)^T - (...)^T + sum_j m_j u_j u_j^T.

In this form all weights, frequencies and centres are in small tables that are made
once. An evaluation makes large tensors, with one entry for each point and feature, but
only takes a cosine, a sine, a kernel and matrix products of them. Weights that depend
on the level of a point multiply these large tensors instead. The work is cut into
pieces of a few functions, not of a few points, because every function has its own
tables.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, NamedTuple, cast

import torch
from torch import Tensor

from botorch_res.sampling import memory
from botorch_res.sampling.batch_function import Derivatives
from botorch_res.sampling.levels import at_levels

if TYPE_CHECKING:
    from botorch_res.sampling.expansion import Expansion


class Tables(NamedTuple):
    """Tables of the functions that do not depend on the points.

    The first dimension is that of a model's samples, or one if all samples share it.

    Attributes:
        frequencies: ``1 x batch_shape x d x F`` frequencies ``w``.
        angles: ``sample_shape x 1 x F`` angles ``e``; zero if there are levels.
        offset: ``sample_shape x 1`` constants.
        cosines: ``sample_shape x F x (1 + k * k)`` factors of cosines.
        sines: ``sample_shape x F x k`` factors of sines.
        centers: ``1 x batch_shape x t x d`` centres ``u_j`` of the kernels.
        half_norms: ``1 x batch_shape x 1 x t``, minus half of their squared norms.
        kernels: ``sample_shape x t x (1 + k + k * k)`` factors of the kernels.
        slope: ``1 x batch_shape x 1 x k`` derivatives of the scaled columns.
        metric: ``1 x batch_shape x 1 x k x k`` products of these derivatives, for pairs
            that are one and the same column; zero for others.
        weights: ``sample_shape x L x (2 F + t)`` amplitudes ``r``, angles ``e`` and
            weights of the kernels of each level. The factors above are without them
            then. Without levels ``L`` is zero.
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
    weights: Tensor

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
        kernel = expansion.kernel
        self.is_simple = kernel.shares is None
        slope = slope.index_select(-1, columns).unsqueeze(0)
        frequencies = expansion.frequencies.unsqueeze(0)
        rates = slope * frequencies.index_select(-1, columns)
        centers = expansion.centers.unsqueeze(0)
        center = slope * centers.index_select(-1, columns)
        products = [torch.ones_like(center[..., :1]), center, _outer(center)]
        if expansion.levels is None:
            amplitude = expansion.amplitudes.unsqueeze(-1)
            angles = expansion.angles.unsqueeze(-2)
            weight = expansion.kernel_weights.unsqueeze(-1)
            weights = expansion.cosines.unsqueeze(-2)[..., :0, :]
        else:
            amplitude = torch.ones_like(frequencies[..., :1])
            angles = torch.zeros_like(amplitude.mT)
            weight = torch.ones_like(centers[..., :1])
            parts = expansion.amplitudes, expansion.angles, expansion.kernel_weights
            weights = torch.cat(parts, dim=-1)
        self.tables = Tables(
            frequencies=frequencies.mT.contiguous(),
            angles=angles,
            offset=expansion.offset.unsqueeze(-1),
            cosines=torch.cat([amplitude, -amplitude * _outer(rates)], dim=-1),
            sines=-amplitude * rates,
            centers=centers,
            half_norms=-0.5 * centers.square().sum(dim=-1).unsqueeze(-2),
            kernels=weight * torch.cat(products, dim=-1),
            slope=slope,
            metric=_outer(slope).unflatten(-1, (len(columns), len(columns)))
            * (columns.unsqueeze(-1) == columns),
            weights=weights,
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
            levels = self.expansion.levels
            level = None if levels is None else levels.index(z)
            features = self.tables.frequencies.shape[-1] + self.tables.centers.shape[-2]
            others = self.expansion.sample_shape[1:].numel()
            points = max(1, memory.piece_size(z.device) // (features * others))
            count = max(1, points // max(1, u.shape[-2]))
            rows = max(1, points // count)
            parts = []
            for start in range(0, len(u), count):
                tables = self.tables.narrow(start, start + count)
                own = slice(start, start + count)
                pieces = u[own].split(rows, dim=-2)
                where: tuple[Tensor | None, ...] = (None,) * len(pieces)
                if level is not None:
                    where = level[own].split(rows, dim=-1)
                found = [
                    self._evaluate(*piece, tables)
                    for piece in zip(pieces, where, strict=True)
                ]
                parts.append(_join(found, True))
            return _join(parts, False)

    def _evaluate(self, u: Tensor, level: Tensor | None, tables: Tables) -> Derivatives:
        """Evaluate one piece."""
        k = len(self.columns)
        phase = u @ tables.frequencies
        angles, amplitude, weight = tables.angles, None, None
        if level is not None:
            waves = tables.frequencies.shape[-1]
            sizes = [waves, waves, tables.centers.shape[-2]]
            weights = at_levels(tables.weights, level.unsqueeze(-3)).squeeze(-4)
            amplitude, angles, weight = weights.split(sizes, dim=-1)
        phase = phase.sub_(angles)
        even, odd = phase.cos(), phase.sin_()
        if amplitude is not None:
            even, odd = even.mul_(amplitude), odd.mul_(amplitude)
        value, hessian = (even @ tables.cosines).split([1, k * k], dim=-1)
        value = tables.offset + value.squeeze(-1)
        gradient = odd @ tables.sines
        hessian = hessian.unflatten(-1, (k, k))
        if tables.centers.shape[-2] == 0:
            return Derivatives(value, gradient, hessian)
        evaluate = self._kernels if self.is_simple else self._products
        kernels = evaluate(u, weight, tables)
        return Derivatives(
            value + kernels.value,
            gradient + kernels.gradient,
            hessian + kernels.hessian,
        )

    def _kernels(self, u: Tensor, weight: Tensor | None, tables: Tables) -> Derivatives:
        """Compute the part of a kernel with a single factor."""
        k, kernel = len(self.columns), self.expansion.kernel
        table = tables.kernels
        if kernel.is_analytic:  # k0 = k2 = -k1: one product serves all
            norms = 0.5 * u.square().sum(dim=-1, keepdim=True)
            k2 = (u @ tables.centers.mT + tables.half_norms - norms).exp()
            if weight is not None:
                k2 = k2.mul_(weight)
            total2, moment2, square = (k2 @ table).split([1, k, k * k], dim=-1)
            total0, total1, moment1 = total2, -total2, -moment2
        else:
            (triple,) = kernel.derivatives(kernel.distances(u, tables.centers))
            if weight is not None:
                triple = (triple[0] * weight, triple[1] * weight, triple[2] * weight)
            k0, k1, k2 = triple
            total0 = k0 @ table[..., :1]
            total1, moment1 = (k1 @ table[..., : 1 + k]).split([1, k], dim=-1)
            total2, moment2, square = (k2 @ table).split([1, k, k * k], dim=-1)
        point = tables.slope * u.index_select(-1, self.columns)
        mixed = point.unsqueeze(-1) * (moment2 - 0.5 * total2 * point).unsqueeze(-2)
        hessian = square.unflatten(-1, (k, k)) - mixed - mixed.mT
        hessian.add_(total1.unsqueeze(-1) * tables.metric)
        return Derivatives(total0.squeeze(-1), total1 * point - moment1, hessian)

    def _products(
        self, u: Tensor, weight: Tensor | None, tables: Tables
    ) -> Derivatives:
        """Compute the part of a kernel with several factors, pair by pair.

        With ``D_i = slope (u - u_j)`` as factor ``i`` sees it, a product has the
        gradient ``sum_i k1_i D_i`` and the Hessian ``sum_i k2_i D_i D_i^T + k1_i
        metric_i + sum_(i != l) k1_i k1_l D_i D_l^T``, each times the other factors.
        """
        kernel = self.expansion.kernel
        triples = kernel.derivatives(kernel.distances(u, tables.centers))
        if weight is None:
            weight = tables.kernels[..., 0].unsqueeze(-2)
        shares = cast(Tensor, kernel.shares).square()
        shares = shares.index_select(-1, self.columns)
        gap = u.index_select(-1, self.columns).unsqueeze(-2)
        gap = gap - tables.centers.index_select(-1, self.columns).unsqueeze(-3)
        moves = [(tables.slope * share).unsqueeze(-2) * gap for share in shares]

        def product(*by: int) -> Tensor:
            """Differentiate by the squared distances of some factors."""
            own = (triple[by.count(i)] for i, triple in enumerate(triples))
            return reduce(torch.mul, own, weight)

        value = product().sum(dim=-1)
        gradient, hessian = torch.zeros_like(gap[..., 0, :]), 0.0 * tables.metric
        for i, move in enumerate(moves):
            first = product(i).unsqueeze(-2)
            gradient = gradient + (first @ move).squeeze(-2)
            curvature = first.sum(dim=-1, keepdim=True) * tables.metric
            hessian = hessian + curvature * shares[i].unsqueeze(-1)
            for j, other in enumerate(moves):
                second = product(i, j).unsqueeze(-1)
                hessian = hessian + (second * move).mT @ other
        return Derivatives(value, gradient, hessian)


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
