"""Expected improvement of the worst case, by BoTorch's risk measures."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.acquisition.risk_measures import WorstCase
from botorch.models.model import Model
from botorch.models.transforms.input import (
    AppendFeatures,
    ChainedInputTransform,
    FilterFeatures,
)
from botorch.sampling.normal import SobolQMCNormalSampler
from botorch.utils.sampling import manual_seed
from torch import Tensor

from botorch_res.domain import RobustDomain
from botorch_res.optim import WorstCaseSolver
from botorch_res.optim.optimize_acqf import optimize_robust_acqf
from botorch_res.optim.recommend import mean_function
from botorch_res.strategies.base import Strategy, register_strategy


@register_strategy("worst_case_nei")
class WorstCaseImprovementStrategy(Strategy):
    """Propose what a BoTorch user picks today for the worst case.

    ``qLogNoisyExpectedImprovement`` of the risk measure ``WorstCase``, whose thetas
    ``AppendFeatures`` appends to every ``x``, gives the next ``x``. It says nothing
    about ``theta``: that is the worst one there by the posterior mean.

    A finite ``Theta`` is appended as it is. A box is represented by a Sobol sequence of
    ``num_thetas`` points, new for every seed; the last step searches all of it.

    Attributes:
        num_thetas: The number of thetas that represent a box.
        num_samples: The number of functions over which the improvement is averaged.
        num_restarts: The number of starting points of the local search.
        raw_samples: The number of points from which these are selected.
        batch_limit: The largest number of points that are evaluated at once.
    """

    def __init__(
        self,
        domain: RobustDomain,
        *,
        num_thetas: int = 32,
        num_samples: int = 64,
        num_restarts: int = 4,
        raw_samples: int = 64,
        batch_limit: int = 64,
        **kwargs: Any,
    ) -> None:
        """Build the strategy.

        Args:
            domain: The domain.
            num_thetas: The number of thetas that represent a box.
            num_samples: The number of functions over which the improvement is averaged.
            num_restarts: The number of starting points of the local search.
            raw_samples: The number of points from which these are selected.
            batch_limit: The largest number of points that are evaluated at once.
            **kwargs: Further arguments of ``Strategy``.
        """
        super().__init__(domain, **kwargs)
        self.num_thetas = num_thetas
        self.num_samples = num_samples
        self.num_restarts = num_restarts
        self.raw_samples = raw_samples
        self.batch_limit = batch_limit

    def propose(
        self,
        X: Tensor,
        Y: Tensor,
        Yvar: Tensor | None = None,
        X_pending: Tensor | None = None,
        n: int = 1,
        seed: int = 0,
    ) -> Tensor:
        """Maximise the improvement over ``x``, then choose ``theta``.

        Args:
            X: A ``t x d`` tensor of evaluated points.
            Y: A ``t x 1`` tensor of their observed values.
            Yvar: A ``t x 1`` tensor of the noise variances, or ``None``.
            X_pending: A ``p x d`` tensor of points under way.
            n: The number of points.
            seed: The seed of the functions, of the thetas and of the search.

        Returns:
            An ``n x d`` tensor.
        """
        model = self.fit(X, Y, Yvar)
        thetas = self.domain.theta_choices
        if thetas is None:
            thetas = self.domain.sample_theta(self.num_thetas, seed=seed)
        # The improvement depends on x alone: one theta is enough to search it.
        search_domain = RobustDomain(
            self.domain.bounds,
            self.domain.uncontrollable,
            self.domain.x_choices,
            thetas[:1],
        )
        with manual_seed(seed):
            candidates, _ = optimize_robust_acqf(
                WorstCaseImprovement(
                    model,
                    self.domain,
                    thetas,
                    X,
                    maximize=self.maximize,
                    X_pending=X_pending,
                    num_samples=self.num_samples,
                    seed=seed,
                ),
                search_domain,
                q=n,
                num_restarts=self.num_restarts,
                raw_samples=self.raw_samples,
                batch_limit=self.batch_limit,
                seed=seed,
            )
        x, _ = self.domain.split(candidates)
        mean = mean_function(model, negate=self.maximize)
        worst = WorstCaseSolver(mean, self.domain)(x)
        return self.domain.join(x, worst.theta.reshape(n, -1))


class WorstCaseImprovement(AcquisitionFunction):
    """``qLogNoisyExpectedImprovement`` of the worst case, as a function of ``z``."""

    def __init__(
        self,
        model: Model,
        domain: RobustDomain,
        thetas: Tensor,
        X: Tensor,
        maximize: bool,
        X_pending: Tensor | None,
        num_samples: int,
        seed: int,
    ) -> None:
        """Build BoTorch's acquisition function.

        Args:
            model: The model of ``z``.
            domain: The domain.
            thetas: The ``m x d_theta`` thetas among which the worst is looked for.
            X: The ``t x d`` evaluated points.
            maximize: Whether the worst case is to be maximised.
            X_pending: The ``p x d`` points under way, or ``None``.
            num_samples: The number of functions.
            seed: The seed of the functions.
        """
        super().__init__(model=model)
        self.domain = domain
        # BoTorch maximises. Negating the posterior, and not its samples, makes
        # minimising the mirror image of maximising to the last draw.
        negate = ScalarizedPosteriorTransform(-torch.ones_like(X[0, :1]))
        self.improvement = qLogNoisyExpectedImprovement(
            append_thetas(model, domain, thetas),
            # Repeated x would be perfectly correlated.
            X_baseline=domain.split(X)[0].unique(dim=0),
            sampler=SobolQMCNormalSampler(torch.Size([num_samples]), seed=seed),
            objective=WorstCase(len(thetas)),
            posterior_transform=None if maximize else negate,
        )
        self.set_X_pending(X_pending)

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Tell of pending points.

        Args:
            X_pending: ``p x d`` points, or ``None``.
        """
        super().set_X_pending(X_pending)
        x = None if X_pending is None else self.domain.split(X_pending)[0].unique(dim=0)
        self.improvement.set_X_pending(x)

    def forward(self, X: Tensor) -> Tensor:
        """Evaluate the improvement.

        Args:
            X: ``batch_shape x 1 x d`` points, whose ``theta`` does not matter.

        Returns:
            ``batch_shape`` values.
        """
        value: Tensor = self.improvement(self.domain.split(X)[0])
        return value


def append_thetas(model: Model, domain: RobustDomain, thetas: Tensor) -> Model:
    """Turn a model of ``z`` into one of ``x`` that predicts all thetas jointly.

    Args:
        model: The model, in evaluation mode.
        domain: The domain.
        thetas: The ``m x d_theta`` thetas.

    Returns:
        A copy of the model that takes ``q x d_x`` points, and predicts ``q * m``.
    """
    copy: Any = deepcopy(model)
    order = torch.tensor([*domain.controllable, *domain.uncontrollable])
    steps = {
        "thetas": AppendFeatures(thetas),
        "order": FilterFeatures(order.argsort().to(thetas.device), False),
    }
    if hasattr(copy, "input_transform"):
        steps["model"] = copy.input_transform
    copy.input_transform = ChainedInputTransform(**steps)
    copy.input_transform.eval()
    return copy  # type: ignore[no-any-return]
