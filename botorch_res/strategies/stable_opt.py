"""StableOpt as a strategy."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from botorch_res.acquisition import StableOpt
from botorch_res.domain import RobustDomain
from botorch_res.strategies.base import Strategy, register_strategy


@register_strategy("stable_opt")
class StableOptStrategy(Strategy):
    """Propose the best ``x`` in an optimistic, and its ``theta`` in a pessimistic mood.

    Attributes:
        sqrt_beta: The bounds' distance from the mean, in standard deviations.
    """

    def __init__(
        self, domain: RobustDomain, *, sqrt_beta: float = 2.0, **kwargs: Any
    ) -> None:
        """Build the strategy.

        Args:
            domain: The domain.
            sqrt_beta: The bounds' distance from the mean, in standard deviations.
            **kwargs: Further arguments of ``Strategy``.
        """
        super().__init__(domain, **kwargs)
        self.sqrt_beta = sqrt_beta

    def propose(
        self,
        X: Tensor,
        Y: Tensor,
        Yvar: Tensor | None = None,
        X_pending: Tensor | None = None,
        n: int = 1,
        seed: int = 0,
    ) -> Tensor:
        """Apply the two-stage rule, one point after the other.

        Args:
            X: A ``t x d`` tensor of evaluated points.
            Y: A ``t x 1`` tensor of their observed values.
            Yvar: A ``t x 1`` tensor of the noise variances, or ``None``.
            X_pending: A ``p x d`` tensor of points under way, which are taken for
                observations of the posterior mean.
            n: The number of points.
            seed: Ignored, nothing is drawn.

        Returns:
            An ``n x d`` tensor.
        """
        pending = X[:0] if X_pending is None else X_pending
        for _ in range(n):
            rule = StableOpt(
                self.fit(*self.believe(X, Y, Yvar, pending)),
                self.domain,
                beta=self.sqrt_beta**2,
                maximize=self.maximize,
            )
            candidate, _ = rule.optimize()
            pending = torch.cat([pending, candidate])
        return pending[len(pending) - n :]
