"""StableOpt as a strategy."""

from __future__ import annotations

from dataclasses import dataclass

from botorch.models.model import Model
from torch import Tensor

from botorch_res.acquisition import StableOpt
from botorch_res.checks import at_least
from botorch_res.strategies.base import SequentialStrategy, register_strategy


@register_strategy("stable_opt")
@dataclass(eq=False, kw_only=True)
class StableOptStrategy(SequentialStrategy):
    """Propose the best ``x`` by optimistic bounds, its ``theta`` by pessimistic ones.

    Attributes:
        sqrt_beta: The bounds' distance from the mean, in standard deviations.
    """

    sqrt_beta: float = at_least(0.0, 2.0)

    def propose_one(
        self, X: Tensor, Y: Tensor, Yvar: Tensor | None, X_pending: Tensor, seed: int
    ) -> Tensor:
        """Apply the two-stage rule.

        Args:
            X: A ``t x d`` tensor of evaluated points.
            Y: A ``t x 1`` tensor of their observed values.
            Yvar: A ``t x 1`` tensor of the noise variances, or ``None``.
            X_pending: A ``p x d`` tensor of pending points, which are taken for
                observations of the posterior mean.
            seed: Ignored: nothing is drawn.

        Returns:
            A ``1 x d`` tensor.
        """
        return self._apply(self.fit(*self.believe(X, Y, Yvar, X_pending)))

    def propose_batch(self, X: Tensor, Y: Tensor, seeds: list[int]) -> Tensor:
        """Propose the next point of each of several runs.

        Args:
            X: An ``S x t x d`` tensor of evaluated points.
            Y: An ``S x t x 1`` tensor of their observed values.
            seeds: The ``S`` seeds of the runs.

        Returns:
            An ``S x d`` tensor.
        """
        return self._apply(self.fit(X, Y)).squeeze(-2)

    def _apply(self, model: Model) -> Tensor:
        """The ``batch_shape x 1 x d`` points of a model, single or a batch."""
        rule = StableOpt(
            model,
            self.domain,
            beta=self.sqrt_beta**2,
            maximize=self.maximize,
            constraints=self.constraints,
        )
        return rule.optimize()[0]
