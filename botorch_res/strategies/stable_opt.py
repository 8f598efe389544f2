"""StableOpt as a strategy."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from botorch_res.acquisition import StableOpt
from botorch_res.limits import at_least
from botorch_res.strategies.base import Strategy, register_strategy


@register_strategy("stable_opt")
@dataclass(eq=False, kw_only=True)
class StableOptStrategy(Strategy):
    """Propose the best ``x`` in an optimistic, and its ``theta`` in a pessimistic mood.

    Attributes:
        sqrt_beta: The bounds' distance from the mean, in standard deviations.
    """

    sqrt_beta: float = at_least(0.0, 2.0)

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
        self.check(X, X_pending, n)
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
