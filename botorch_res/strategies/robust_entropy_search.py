"""Robust Entropy Search as a strategy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from botorch.models.model import Model
from torch import Tensor

from botorch_res.acquisition import qRobustEntropySearch
from botorch_res.acquisition.targets import find_target
from botorch_res.checks import at_least, check_number
from botorch_res.optim import optimize_replicates, optimize_robust_acqf
from botorch_res.strategies.base import ModelStrategy, register_strategy


@register_strategy("res")
@dataclass(eq=False, kw_only=True)
class RobustEntropySearchStrategy(ModelStrategy):
    """Propose the points that tell most about the robust optimum.

    Attributes:
        num_samples: The number of function samples.
        target: What the information is about; see ``qRobustEntropySearch``.
        num_restarts: The number of starting points of the local search.
        raw_samples: The number of points from which these are selected.
    """

    num_samples: int = at_least(1, 16)
    target: str = "optimum"
    num_restarts: int = at_least(1, 8)
    raw_samples: int = at_least(1, 256)

    def __post_init__(self) -> None:
        super().__post_init__()
        find_target(self.target)
        check_number("raw_samples", self.raw_samples, self.num_restarts)

    def _propose(
        self, model: Model, X: Tensor, X_pending: Tensor | None, n: int, seed: int
    ) -> Tensor:
        """Maximise the information gain, one point after the other."""
        candidates, _ = optimize_robust_acqf(
            self._acquisition_function(model, seed, X_pending),
            self.domain,
            q=n,
            num_restarts=self.num_restarts,
            raw_samples=self.raw_samples,
            seed=seed,
        )
        return candidates

    def propose_batch(self, X: Tensor, Y: Tensor, seeds: list[int]) -> Tensor:
        """Propose the next point of each of several runs.

        Args:
            X: An ``S x t x d`` tensor of evaluated points.
            Y: An ``S x t x 1`` tensor of their observed values.
            seeds: The ``S`` seeds of the runs.

        Returns:
            An ``S x d`` tensor.
        """
        candidates, _ = optimize_replicates(
            self._acquisition_function(self.fit(X, Y), seeds),
            self.domain,
            seeds,
            num_restarts=self.num_restarts,
            raw_samples=self.raw_samples,
        )
        return candidates

    def _acquisition_function(
        self, model: Model, seed: int | Sequence[int], X_pending: Tensor | None = None
    ) -> qRobustEntropySearch:
        """The function to maximise; the models of a batch have a seed each."""
        return qRobustEntropySearch(
            model,
            self.domain,
            num_samples=self.num_samples,
            maximize=self.maximize,
            target=self.target,
            X_pending=X_pending,
            seed=seed,
            constraints=self.constraints,
        )
