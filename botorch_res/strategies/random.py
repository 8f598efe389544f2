"""Uniformly random points: what every other strategy has to beat."""

from __future__ import annotations

import torch
from torch import Tensor

from botorch_res.strategies.base import Strategy, register_strategy


@register_strategy("random")
class RandomStrategy(Strategy):
    """Propose points uniformly at random."""

    def propose(
        self,
        X: Tensor,
        Y: Tensor,
        Yvar: Tensor | None = None,
        X_pending: Tensor | None = None,
        n: int = 1,
        seed: int = 0,
    ) -> Tensor:
        """Draw points; the data play no part.

        Args:
            X: Ignored.
            Y: Ignored.
            Yvar: Ignored.
            X_pending: Ignored.
            n: The number of points.
            seed: The seed of the scrambled Sobol sequence.

        Returns:
            An ``n x d`` tensor.
        """
        return self.domain.sample(n, seed=seed)

    def propose_batch(self, X: Tensor, Y: Tensor, seeds: list[int]) -> Tensor:
        """Propose the next point of each of several runs.

        Args:
            X: An ``S x t x d`` tensor of evaluated points.
            Y: An ``S x t x 1`` tensor of their observed values.
            seeds: The ``S`` seeds of the runs.

        Returns:
            An ``S x d`` tensor.
        """
        return torch.cat([self.domain.sample(1, seed=seed) for seed in seeds])
