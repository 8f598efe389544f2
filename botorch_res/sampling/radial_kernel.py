r"""The kernel of an expansion: a product of radial profiles.

Most kernels have a single factor. With several, the points ``u`` are in units of the
shortest lengthscale of each column, and each factor sees a share of their distances.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

import torch
from torch import Tensor
from torch.nn import Module

from botorch_res.models.radial import (
    radial_derivatives,
    radial_value,
    squared_distance,
)

# The distance over which a function changes, in lengthscales, by the kernel's
# smoothness. It only sets the spacing of the search grids, whose densities were chosen
# by measurement with these values (see box_search.py and robust_optimum.py). Matern
# functions wiggle at all scales, so no distance follows from theory.
ROUGHNESS = {math.inf: 1.0, 2.5: 0.4, 1.5: 0.1, 0.5: 0.05}


class RadialKernel(Module):
    """A product of squared exponential and Matern kernels of scaled points.

    Attributes:
        smoothness: Matern's ``nu`` of each factor, infinite for the squared
            exponential.
        shares: ``m x batch_shape x 1 x d`` ratios of the scale of ``u`` to the
            factors' lengthscales; ``None`` for a single factor, whose ratio is one.
    """

    shares: Tensor | None

    def __init__(self, smoothness: Sequence[float], shares: Tensor | None) -> None:
        """Store the factors.

        Args:
            smoothness: Matern's ``nu`` of each factor.
            shares: ``m x batch_shape x 1 x d`` ratios, or ``None``.
        """
        super().__init__()
        self.smoothness = tuple(smoothness)
        self.register_buffer("shares", shares)

    @property
    def is_analytic(self) -> bool:
        """Whether all factors are squared exponential."""
        return all(map(math.isinf, self.smoothness))

    def lengthscale(self, slope: Tensor) -> Tensor:
        """The distance over which functions change, infinite if they do not.

        Args:
            slope: ``batch_shape x 1 x d`` derivatives of ``u`` by the user's columns.

        Returns:
            ``d`` distances, in the user's units, the least of all models and factors.
        """
        steepest = [
            ROUGHNESS[smoothness] / own.abs().flatten(0, -2).amax(dim=0)
            for smoothness, own in zip(self.smoothness, self.scaled(slope), strict=True)
        ]
        return reduce(torch.minimum, steepest)

    def scaled(self, u: Tensor) -> list[Tensor]:
        """The points, or anything in their units, in the units of each factor.

        Args:
            u: ``... x batch_shape x n x d`` scaled points.

        Returns:
            For each factor a tensor of the same shape.
        """
        return [u] if self.shares is None else [u * share for share in self.shares]

    def distances(self, u: Tensor, centers: Tensor) -> list[Tensor]:
        """The squared distances that each factor sees.

        Args:
            u: ``... x n x d`` scaled points.
            centers: ``... x t x d`` scaled points.

        Returns:
            For each factor ``... x n x t`` squared distances.
        """
        parts = zip(self.scaled(u), self.scaled(centers), self.smoothness, strict=True)
        return [squared_distance(*part) for part in parts]

    def value(self, distances: Sequence[Tensor]) -> Tensor:
        """The correlation.

        Args:
            distances: The squared distances that each factor sees.

        Returns:
            Correlations, of the same shape.
        """
        factors = zip(distances, self.smoothness, strict=True)
        return reduce(torch.mul, (radial_value(*factor) for factor in factors))

    def derivatives(
        self, distances: Sequence[Tensor]
    ) -> list[tuple[Tensor, Tensor, Tensor]]:
        """The triples ``k0, k1, k2`` of all factors, see ``radial``.

        Args:
            distances: The squared distances that each factor sees.

        Returns:
            For each factor three tensors.
        """
        factors = zip(distances, self.smoothness, strict=True)
        return [radial_derivatives(*factor) for factor in factors]
