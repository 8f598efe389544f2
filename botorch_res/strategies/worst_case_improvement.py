"""Expected improvement of the worst case, by BoTorch's risk measures.

BoTorch smooths the improvement, and repairs covariances, by constants that suit
outcomes of order one. It is therefore given the outcomes of the model's own space.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.acquisition.objective import PosteriorTransform
from botorch.acquisition.risk_measures import WorstCase
from botorch.acquisition.utils import get_infeasible_cost
from botorch.models.model import Model
from botorch.models.model_list_gp_regression import ModelListGP
from botorch.models.transforms.input import AppendFeatures
from botorch.posteriors.gpytorch import GPyTorchPosterior
from botorch.sampling.normal import SobolQMCNormalSampler
from botorch.utils.objective import apply_constraints
from botorch.utils.safe_math import logmeanexp
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from linear_operator import LinearOperator, to_linear_operator
from linear_operator.operators import BlockDiagLinearOperator
from linear_operator.settings import cholesky_jitter
from torch import Tensor
from torch.nn import ModuleList

from botorch_res.checks import at_least
from botorch_res.domain import RobustDomain
from botorch_res.models import ExactGPView
from botorch_res.models.members import members
from botorch_res.optim import WorstCaseSolver, mean_function, optimize_robust_acqf
from botorch_res.sampling.outcome_constraints import (
    OutcomeConstraints,
    Reading,
    read_outputs,
    single_output,
)
from botorch_res.seeding import seeded
from botorch_res.strategies.base import ModelStrategy, register_strategy


@register_strategy("worst_case_nei")
@dataclass(eq=False, kw_only=True)
class WorstCaseImprovementStrategy(ModelStrategy):
    """Propose what a BoTorch user picks today for the worst case.

    ``qLogNoisyExpectedImprovement`` of the risk measure ``WorstCase``, whose thetas
    ``AppendThetas`` appends to every ``x``, gives the next ``x``. It says nothing
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

    num_thetas: int = at_least(1, 32)
    num_samples: int = at_least(1, 64)
    num_restarts: int = at_least(1, 4)
    raw_samples: int = at_least(1, 64)
    batch_limit: int = at_least(1, 64)

    def _propose(
        self, model: Model, X: Tensor, X_pending: Tensor | None, n: int, seed: int
    ) -> Tensor:
        """Maximise the improvement over ``x``, then choose ``theta``."""
        thetas = self.domain.theta.choices
        if thetas is None:
            thetas = self.domain.theta.sample(self.num_thetas, seed=seed)
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
                constraints=self.constraints,
            ),
            self.domain.settings(),  # the improvement depends on x alone
            q=n,
            num_restarts=self.num_restarts,
            raw_samples=self.raw_samples,
            batch_limit=self.batch_limit,
            seed=seed,
        )
        x = self.domain.setting(candidates)
        objective = model if self.constraints is None else single_output(model, 0)
        mean = mean_function(objective, self.maximize, self.domain)
        worst = WorstCaseSolver(mean, self.domain)(x)
        z = self.domain.join(x, worst.theta.reshape(n, -1))
        return self.domain.nearest_evaluation(z)


class WorstCaseImprovement(AcquisitionFunction):
    """``qLogNoisyExpectedImprovement`` of the worst case, as a function of ``z``.

    That of an ensemble is the average of the members' improvements.
    """

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
        constraints: OutcomeConstraints | None = None,
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
            seed: The seed of the functions, and of those that prune the baseline.
            constraints: The bounds of further outputs. An ``x`` improves if all of them
                hold for all thetas.
        """
        super().__init__(model=model)
        self.domain, self.seed = domain, seed
        # BoTorch maximises. Negating the model, and not its samples, makes minimising
        # the mirror image of maximising to the last draw.
        readings = read_outputs(model, constraints, 0, not maximize)
        outputs = []
        for reading in readings:
            models = members(reading.view)
            for single in models:
                transform = AppendThetas(reading.view, domain, thetas)
                single.input_transform = transform.eval()
            outputs.append(models)
        # The members of an ensemble, each with all outputs.
        joint = [
            own[0] if len(own) == 1 else ModelListGP(*own)
            for own in zip(*outputs, strict=True)
        ]
        baseline = domain.setting(X).unique(dim=0)
        weighted = [Weighted(readings, i) for i in range(len(joint))]
        if constraints is not None:
            for member, own in zip(joint, weighted, strict=True):
                own.cost = get_infeasible_cost(
                    baseline, member, own, posterior_transform=Jitter()
                )
        with seeded(seed):  # BoTorch prunes with the global generator
            self.improvements = ModuleList(
                qLogNoisyExpectedImprovement(
                    member,
                    X_baseline=baseline,
                    sampler=SobolQMCNormalSampler(torch.Size([num_samples]), seed=seed),
                    objective=WorstCase(len(thetas), preprocessing_function=own),
                    posterior_transform=Jitter(),
                    prune_baseline=True,
                )
                for member, own in zip(joint, weighted, strict=True)
            )
        self.set_X_pending(X_pending)

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Set the pending points.

        Args:
            X_pending: ``p x d`` points, or ``None``.
        """
        super().set_X_pending(X_pending)
        x = None if X_pending is None else self.domain.setting(X_pending).unique(dim=0)
        improvement: Any
        with seeded(self.seed):  # BoTorch prunes again, with the pending points
            for improvement in self.improvements:
                improvement.set_X_pending(x)

    def forward(self, X: Tensor) -> Tensor:
        """Evaluate the improvement.

        Args:
            X: ``batch_shape x 1 x d`` points, whose ``theta`` does not matter.

        Returns:
            ``batch_shape`` values.
        """
        x = self.domain.setting(X)
        values = torch.stack([improvement(x) for improvement in self.improvements])
        average: Tensor = logmeanexp(values, dim=0)
        return average


class Weighted:
    """The objective, or the cost of a violation where a constraint does not hold.

    This is how BoTorch combines constraints and risk measures: the worst case over the
    thetas is as bad as the cost if a constraint does not hold for one of them.
    """

    def __init__(self, readings: list[Reading], member: int) -> None:
        """Store the bounds.

        Args:
            readings: The objective and the constrained outputs.
            member: The member of an ensemble.
        """
        # Members have no prior mean.
        self.limits = [
            (output, sign, bound.flatten()[member] - _prior_mean(reading.view, member))
            for output, reading in enumerate(readings)
            for sign, bound in reading.limits
        ]
        self.cost: Tensor | None = None

    def __call__(self, samples: Tensor, X: Tensor | None = None) -> Tensor:
        """Weigh the objective.

        Args:
            samples: ``... x m`` outputs.
            X: Ignored.

        Returns:
            ``...`` values.
        """
        if self.cost is None:
            return samples[..., 0]
        constraints: list[Any] = [partial(_beyond, *limit) for limit in self.limits]
        cost: Any = self.cost  # a number, says BoTorch, and makes a tensor of it
        weighed: Tensor = apply_constraints(
            samples[..., 0], constraints, samples, infeasible_cost=cost
        )
        return weighed


def _beyond(output: int, sign: float, bound: Tensor, samples: Tensor) -> Tensor:
    """How far an output is beyond a bound; at most zero where that holds."""
    return sign * (samples[..., output] - bound)


def _prior_mean(view: ExactGPView, member: int) -> Tensor:
    """The constant prior mean of a member."""
    return view.prior_mean(view.train_inputs)[..., 0].flatten()[member]


class Jitter(PosteriorTransform):
    """Adds to all variances what ``linear_operator`` adds to singular covariances.

    Functions are drawn jointly at many close thetas, where the covariance is singular
    up to rounding. With the jitter always in place all points are treated alike, and
    nothing has to be repaired on the way. Next to outcomes of order one its standard
    deviation is ``1e-4`` in double precision.
    """

    def evaluate(self, Y: Tensor, X: Tensor | None = None) -> Tensor:
        """Leave outcomes as they are.

        Args:
            Y: ``batch_shape x q x 1`` outcomes.
            X: Ignored.

        Returns:
            The outcomes.
        """
        return Y

    def forward(self, posterior: Any, X: Tensor | None = None) -> GPyTorchPosterior:
        """Add the jitter.

        Args:
            posterior: The posterior.
            X: Ignored.

        Returns:
            The posterior with larger variances.
        """
        distribution = posterior.distribution
        if not isinstance(distribution, MultitaskMultivariateNormal):
            covariance = _with_jitter(distribution.covariance_matrix)
            return GPyTorchPosterior(MultivariateNormal(distribution.mean, covariance))
        # Independent outputs have a block each, which BoTorch factorises one by one.
        blocks: Any = distribution.lazy_covariance_matrix
        covariance = BlockDiagLinearOperator(
            _with_jitter(blocks.base_linear_op.to_dense())
        )
        return GPyTorchPosterior(
            MultitaskMultivariateNormal(
                distribution.mean, covariance, interleaved=False
            )
        )


def _with_jitter(covariance: Tensor) -> LinearOperator:
    """Add the jitter to a covariance."""
    variance = torch.diagonal(covariance, dim1=-2, dim2=-1)
    jitter = torch.full_like(variance, cholesky_jitter.value(covariance.dtype))
    # A tensor would be factorised at once, with all points that BoTorch knows.
    lazy: LinearOperator = to_linear_operator(covariance + jitter.diag_embed())
    return lazy


class AppendThetas(AppendFeatures):
    """Appends all thetas to every ``x``, and goes on to the model's space."""

    def __init__(self, view: ExactGPView, domain: RobustDomain, thetas: Tensor) -> None:
        """Keep the way into the model's space.

        Args:
            view: The model.
            domain: The domain.
            thetas: The ``m x d_theta`` thetas.
        """
        super().__init__(feature_set=thetas, transform_on_fantasize=True)
        self.view, self.domain = view, domain

    def transform(self, X: Tensor) -> Tensor:
        """Transform points.

        Args:
            X: ``batch_shape x q x d_x`` controllable parts.

        Returns:
            ``batch_shape x (q * m) x d`` points in the model's space.
        """
        sizes = [self.domain.x.dim, self.domain.theta.dim]
        x, theta = super().transform(X).split(sizes, dim=-1)
        return self.view.transform_inputs(self.domain.join(x, theta))
