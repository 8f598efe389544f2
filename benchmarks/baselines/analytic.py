"""Expected improvement and upper confidence bound, which are not robust."""

from __future__ import annotations

from dataclasses import dataclass

from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.acquisition.analytic import LogExpectedImprovement, UpperConfidenceBound
from botorch.models import SingleTaskGP
from torch import Tensor

from benchmarks.baselines.non_robust import NonRobustStrategy
from botorch_res.checks import at_least
from botorch_res.strategies import register_strategy


@register_strategy("expected_improvement")
class ExpectedImprovementStrategy(NonRobustStrategy):
    """Propose the point with the largest expected improvement over the best value.

    This is BoTorch's ``LogExpectedImprovement``: it has the maximum of
    ``ExpectedImprovement``, but where the improvement is hopeless it still has a slope
    for the search to follow, while the other is zero to machine precision.
    """

    supports_pending = False

    def _build(
        self,
        model: SingleTaskGP,
        points: Tensor,
        bounds: Tensor,
        X_pending: Tensor | None,
        num_members: int,
    ) -> AcquisitionFunction:
        return LogExpectedImprovement(model, best_f=model.train_targets.max())


@register_strategy("upper_confidence_bound")
@dataclass(eq=False, kw_only=True)
class UpperConfidenceBoundStrategy(NonRobustStrategy):
    """Propose the point with the best optimistic value.

    Attributes:
        sqrt_beta: The bound's distance from the mean, in standard deviations.
    """

    sqrt_beta: float = at_least(0.0, 2.0)
    supports_pending = False

    def _build(
        self,
        model: SingleTaskGP,
        points: Tensor,
        bounds: Tensor,
        X_pending: Tensor | None,
        num_members: int,
    ) -> AcquisitionFunction:
        return UpperConfidenceBound(model, beta=self.sqrt_beta**2)
