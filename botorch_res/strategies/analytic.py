"""Expected improvement and upper confidence bound, which are not robust."""

from __future__ import annotations

from typing import Any

from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.acquisition.analytic import LogExpectedImprovement, UpperConfidenceBound
from botorch.models import SingleTaskGP
from torch import Tensor

from botorch_res.domain import RobustDomain
from botorch_res.strategies.base import register_strategy
from botorch_res.strategies.non_robust import NonRobustStrategy


@register_strategy("expected_improvement")
class ExpectedImprovementStrategy(NonRobustStrategy):
    """Propose the point with the largest expected improvement over the best value.

    This is BoTorch's ``LogExpectedImprovement``: it has the maximum of
    ``ExpectedImprovement``, but where the improvement is hopeless it still has a slope
    for the search to follow, while the other is zero to machine precision.
    """

    supports_pending = False

    def build(
        self,
        model: SingleTaskGP,
        points: Tensor,
        bounds: Tensor,
        X_pending: Tensor | None,
    ) -> AcquisitionFunction:
        """Build the acquisition function.

        Args:
            model: The model.
            points: Ignored.
            bounds: Ignored.
            X_pending: Ignored: the model has been told of them.

        Returns:
            The acquisition function.
        """
        return LogExpectedImprovement(model, best_f=model.train_targets.max())


@register_strategy("upper_confidence_bound")
class UpperConfidenceBoundStrategy(NonRobustStrategy):
    """Propose the point with the best optimistic value.

    Attributes:
        sqrt_beta: The bound's distance from the mean, in standard deviations.
    """

    supports_pending = False

    def __init__(
        self, domain: RobustDomain, *, sqrt_beta: float = 2.0, **kwargs: Any
    ) -> None:
        """Build the strategy.

        Args:
            domain: The domain.
            sqrt_beta: The bound's distance from the mean, in standard deviations.
            **kwargs: Further arguments of ``NonRobustStrategy``.
        """
        super().__init__(domain, **kwargs)
        self.sqrt_beta = sqrt_beta

    def build(
        self,
        model: SingleTaskGP,
        points: Tensor,
        bounds: Tensor,
        X_pending: Tensor | None,
    ) -> AcquisitionFunction:
        """Build the acquisition function.

        Args:
            model: The model.
            points: Ignored.
            bounds: Ignored.
            X_pending: Ignored: the model has been told of them.

        Returns:
            The acquisition function.
        """
        return UpperConfidenceBound(model, beta=self.sqrt_beta**2)
