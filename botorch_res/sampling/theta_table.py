r"""All values of a batch of expansions on a fixed set of thetas, as a matrix product.

A feature of ``z = (x, theta)`` is a sum of products of a factor in ``x`` and a factor
in ``theta`` (see the module of ``Expansion``). The factors of the fixed thetas are made
once. The weights of the samples go to either side: to the thetas, once and for all,
if all samples of a model are evaluated at the same ``x`` and the memory allows it;
otherwise to the ``x``.

Matern kernels do not factorise: their part of the sum is evaluated pair by pair, from
squared distances that add up over the two parts.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from botorch_res.domain import RobustDomain
from botorch_res.models.radial import radial_value, squared_distance
from botorch_res.sampling import function as base

if TYPE_CHECKING:
    from botorch_res.sampling.expansion import Expansion


class ThetaTable:
    """Values of ``sample_shape`` expansions at all pairs of ``x`` with fixed thetas."""

    def __init__(
        self, expansion: Expansion, thetas: Tensor, domain: RobustDomain
    ) -> None:
        """Make the factors of the thetas.

        Args:
            expansion: The functions, with columns that are scaled one by one.
            thetas: ``M x d_theta`` uncontrollable parts.
            domain: Says which columns are controllable.
        """
        self.expansion = expansion
        self.domain = domain
        self.separable = math.isinf(expansion.smoothness)
        self.reference = thetas[:1]
        self.x_columns = torch.tensor(domain.controllable, device=thetas.device)
        self.theta_columns = torch.tensor(domain.uncontrollable, device=thetas.device)
        corner = domain.join(domain.x_bounds[:1], thetas)
        u = expansion.scaled(corner).index_select(-1, self.theta_columns)
        self.factors = self._features(u, self.theta_columns, common=True)
        self.distance = self._distance(u, self.theta_columns, common=True)
        size = self.factors.numel() * expansion.num_samples
        self.weighted = (
            self._weigh(self.factors.unsqueeze(-3))
            if size <= base.MAX_ELEMENTS
            else None
        )

    def __call__(self, x: Tensor) -> Tensor:
        """Evaluate the functions at all pairs.

        Args:
            x: ``b x d_x`` controllable parts for all functions, or
                ``sample_shape x b x d_x``, each function its own, or
                ``batch_shape x 1 x b x d_x``, each model its own.

        Returns:
            ``sample_shape x b x M`` values.
        """
        common = x.ndim == 2 or x.shape[-3] == 1
        z = self.domain.join(x, self.reference)
        u = self.expansion.scaled(z).index_select(-1, self.x_columns)
        if common and x.ndim > 2:
            u = u.squeeze(-3)
        features = self._features(u, self.x_columns, common)
        if common and self.weighted is not None:
            values: Tensor = features @ self.weighted.flatten(-3, -2).mT
            values = values.unflatten(-1, self.weighted.shape[-3:-1]).transpose(-3, -2)
        else:
            weighted = self._weigh(features.unsqueeze(-3) if common else features)
            values = weighted.flatten(-3, -2) @ self.factors.mT
            values = values.unflatten(-2, weighted.shape[-3:-1])
        if not self.separable and self.expansion.centers.shape[-2]:
            values = values + self._kernel(u, common)
        return values + self.expansion.offset[..., None, None]

    def _features(self, u: Tensor, columns: Tensor, common: bool) -> Tensor:
        """The factors of one part of the points.

        Args:
            u: ``... x n x d_part`` scaled parts.
            columns: The part's columns.
            common: Whether all functions of a model have the same points.

        Returns:
            ``... x n x W`` factors: cosines, sines and, if separable, kernels.
        """
        frequencies = self.expansion.frequencies.index_select(-1, columns)
        phase = u @ (frequencies if common else frequencies.unsqueeze(-3)).mT
        factors = [phase.cos(), phase.sin()]
        if self.separable:
            distance = self._distance(u, columns, common)
            factors.append(radial_value(distance, self.expansion.smoothness))
        return torch.cat(factors, dim=-1)

    def _distance(self, u: Tensor, columns: Tensor, common: bool) -> Tensor:
        """One part's share of the squared distances to the centres.

        Args:
            u: ``... x n x d_part`` scaled parts.
            columns: The part's columns.
            common: Whether all functions of a model have the same points.

        Returns:
            ``... x n x t`` squared distances.
        """
        centers = self.expansion.centers.index_select(-1, columns)
        if not common:
            centers = centers.unsqueeze(-3)
        return squared_distance(u, centers, self.expansion.smoothness)

    def _weigh(self, factors: Tensor) -> Tensor:
        """Apply the samples' weights to the factors of one part.

        Args:
            factors: ``... x n x W`` factors; broadcasts with ``sample_shape x n x W``.

        Returns:
            ``sample_shape x n x W`` weighted factors.
        """
        expansion = self.expansion
        a, b = expansion.cosines.unsqueeze(-2), expansion.sines.unsqueeze(-2)
        waves = expansion.frequencies.shape[-2]
        cosine, sine = factors[..., :waves], factors[..., waves : 2 * waves]
        weighted = [a * cosine + b * sine, b * cosine - a * sine]
        if self.separable:
            kernel_weights = expansion.kernel_weights.unsqueeze(-2)
            weighted.append(kernel_weights * factors[..., 2 * waves :])
        return torch.cat(weighted, dim=-1)

    def _kernel(self, u: Tensor, common: bool) -> Tensor:
        """The kernel's part of the sum, pair by pair, in chunks of bounded memory.

        Args:
            u: ``... x b x d_x`` scaled controllable parts.
            common: Whether all functions of a model have the same points.

        Returns:
            ``sample_shape x b x M`` values.
        """
        x_distance = self._distance(u, self.x_columns, common).unsqueeze(-2)
        theta_distance = self.distance.unsqueeze(-3)
        weights = self.expansion.kernel_weights.mT
        if not common:
            theta_distance = theta_distance.unsqueeze(-4)
            weights = self.expansion.kernel_weights[..., None, :, None]
        pairs = x_distance.shape[:-3].numel() * self.distance.shape[-2:].numel()
        rows = max(1, base.piece_size(u.device) // pairs)
        chunks = []
        for part in x_distance.split(rows, dim=-3):
            kernel = radial_value(part + theta_distance, self.expansion.smoothness)
            if common:
                chunks.append((kernel @ weights.unsqueeze(-3)).movedim(-1, -3))
            else:
                chunks.append((kernel @ weights).squeeze(-1))
        return torch.cat(chunks, dim=-2)
