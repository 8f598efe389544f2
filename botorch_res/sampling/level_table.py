r"""All values of a batch of expansions with levels on a fixed set of thetas.

Thetas of the same row of listed values are one group. At one ``x``, a group has one
level, and with it one set of weights: all values of a group are the product of the
factors of ``x``, with these weights, and of those of its thetas. If the level does not
depend on ``x``, and all samples share ``x``, the weights multiply the factors of the
thetas as they do without levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from botorch_res.domain import RobustDomain
from botorch_res.sampling import memory
from botorch_res.sampling.levels import Levels, at_levels
from botorch_res.sampling.theta_table import FactorProduct, ThetaTable

if TYPE_CHECKING:
    from botorch_res.sampling.expansion import Expansion


class LevelTable(ThetaTable):
    """Evaluates ``sample_shape`` expansions with levels at ``x`` and fixed thetas."""

    def __init__(
        self,
        expansion: Expansion,
        thetas: Tensor,
        domain: RobustDomain,
        slope: Tensor,
    ) -> None:
        """Group the thetas, and compute their factors; see ``ThetaTable``."""
        self.levels = cast(Levels, expansion.levels)
        row = self.levels.theta.index(domain.theta.embed(thetas))
        self.group_rows, group, counts = row.unique(
            return_inverse=True, return_counts=True
        )
        # Smaller groups repeat their first theta.
        width = int(counts.max())
        order = group.argsort(stable=True)
        place = torch.arange(len(row), device=row.device)
        place = place - (counts.cumsum(0) - counts)[group[order]]
        members = order[counts.cumsum(0) - counts].unsqueeze(-1).repeat(1, width)
        members[group[order], place] = order
        self.places = torch.empty_like(order)
        self.places[order] = group[order] * width + place
        super().__init__(expansion, thetas[members.flatten()], domain, slope)

    def __call__(self, x: Tensor) -> Tensor:
        """Evaluate the functions at all pairs; see ``ThetaTable``."""
        has_samples = x.ndim == 2 + len(self.expansion.sample_shape)
        row = self.levels.x.index(self.domain.x.embed(x))
        row = row.movedim(0, -2) if has_samples else row.unsqueeze(-2)
        level = self.levels.join(row.unsqueeze(-3), self.group_rows[:, None, None])
        # Weights for every x and group take more memory than the values.
        size = self.expansion.sample_shape.numel() * len(self.group_rows)
        features = 2 * self.expansion.frequencies.shape[-2]
        features += self.expansion.centers.shape[-2]
        count = max(1, memory.MAX_ELEMENTS // (size * features))
        pieces = zip(x.split(count, dim=-2), level.split(count, dim=-1), strict=True)
        values = [self._evaluate(*piece) for piece in pieces]
        return torch.cat(values, dim=-2).index_select(-1, self.places)

    def _make_product(self, names: Sequence[str], factors: Tensor) -> FactorProduct:
        """Make the product with factors of the thetas and weights of all levels."""
        weights = [getattr(self.expansion, name).movedim(0, -3) for name in names]
        waves = self.expansion.frequencies.shape[-2] if "cosines" in names else 0
        rows = None if len(self.levels.x) > 1 else self.group_rows
        size = len(self.group_rows)
        return LevelProduct(factors, torch.cat(weights, dim=-1), waves, size, rows)

    def _sum_pairs(self, kernel: Tensor, shared: bool, level: Tensor | None) -> Tensor:
        """Sum ``... x b x M x t`` kernels of pairs with the weights of their levels."""
        weights = self.expansion.kernel_weights.movedim(0, -3)
        # batch_shape x T x C x b x t
        weights = at_levels(weights, cast(Tensor, level))
        kernel = kernel.unflatten(-2, (len(self.group_rows), -1))
        if shared:  # One product for all samples of a model.
            weights = weights.movedim(-2, -4).movedim(-2, -1)
            values = (kernel.squeeze(-5) @ weights).movedim(-1, -4)
        else:
            weights = weights.movedim(-4, -2).unsqueeze(-1)
            values = (kernel @ weights).squeeze(-1)
        return values.flatten(-2)


class LevelProduct(FactorProduct):
    """Multiplies factors of ``x`` and of groups of thetas, with weights of each level.

    Attributes:
        factors: ``batch_shape x 1 x M x F`` factors of the thetas.
        weights: ``batch_shape x C x L x F`` weights of the samples.
    """

    def __init__(
        self,
        factors: Tensor,
        weights: Tensor,
        waves: int,
        num_groups: int,
        rows: Tensor | None,
    ) -> None:
        """Group the factors, and weigh them if the level does not depend on ``x``.

        Args:
            factors: ``batch_shape x 1 x M x F`` factors of ``T`` groups of thetas.
            weights: ``batch_shape x C x L x F`` weights of the samples.
            waves: The number of cosines among the factors.
            num_groups: The number ``T`` of groups.
            rows: The level of each group, or ``None`` if it depends on ``x``.
        """
        self.weights, self.waves, self.weighted = weights, waves, None
        self.groups = factors.squeeze(-3).unflatten(-2, (num_groups, -1))
        size = factors.numel() * weights.shape[-3]
        if rows is not None and size <= memory.MAX_ELEMENTS:
            own = weights.index_select(-2, rows).unsqueeze(-2)
            weighted = self.weigh(self.groups.unsqueeze(-4), own)
            self.weighted = weighted.flatten(-4, -2)

    def __call__(self, own: Tensor, shared: bool, level: Tensor | None) -> Tensor:
        """Multiply with the factors of ``x``.

        Args:
            own: ``batch_shape x C x b x F`` factors; with ``1`` for ``C`` if shared.
            shared: Whether all samples of a model share them.
            level: Levels that broadcast with ``batch_shape x T x C x b``.

        Returns:
            ``batch_shape x C x b x M`` values.
        """
        if shared and self.weighted is not None:
            return super().__call__(own, shared, level)
        weights = at_levels(self.weights, cast(Tensor, level))
        own = self.weigh(own.unsqueeze(-4), weights)
        # All samples of a group are one product.
        product = own.flatten(-3, -2) @ self.groups.mT
        values: Tensor = product.unflatten(-2, own.shape[-3:-1])
        return values.movedim(-4, -2).flatten(-2)
