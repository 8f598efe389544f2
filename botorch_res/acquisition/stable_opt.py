r"""StableOpt: robust optimisation by confidence bounds.

This is for ``min over x of max over theta``. The next ``x`` minimises the worst case of
the lower confidence bound. The next ``theta`` maximises the upper confidence bound at
that ``x``:

    x_t = argmin_x max_theta (m - sqrt(beta) s)(x, theta)
    theta_t = argmax_theta (m + sqrt(beta) s)(x_t, theta),

with the posterior mean ``m`` and standard deviation ``s``. With constraints on further
outputs, ``x_t`` must be feasible by the lower bounds of the violations. If a constraint
may be violated at ``x_t`` by the upper bounds, ``theta_t`` is where it is violated
most. The bounds of an ensemble are the averages of its members' bounds, as in BoTorch's
``UpperConfidenceBound``.

References:
.. [Bogunovic2018adversarially]
    I. Bogunovic, J. Scarlett, S. Jegelka and V. Cevher. Adversarially robust
    optimization with Gaussian processes. Advances in Neural Information Processing
    Systems 31, 2018.
"""

from __future__ import annotations

import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.acquisition.objective import PosteriorTransform
from botorch.exceptions.errors import UnsupportedError
from botorch.models.model import Model
from botorch.utils.transforms import is_ensemble, t_batch_mode_transform
from torch import Tensor
from torch.nn import ModuleList

from botorch_res.acquisition.problem import is_negating, match_domain
from botorch_res.checks import check_number
from botorch_res.domain import RobustDomain
from botorch_res.models import ExactGPView
from botorch_res.optim import WorstCaseSolver, constrained_robust_optimum
from botorch_res.optim.robust_optima.robust_problem import RobustProblem
from botorch_res.sampling import BatchFunction, posterior_mean
from botorch_res.sampling.affine import AffineFunction
from botorch_res.sampling.outcome_constraints import (
    OutcomeConstraints,
    beyond_bounds,
    read_constraints,
    single_output,
)


class ConfidenceBound(BatchFunction):
    """The posterior mean plus a multiple of the standard deviation.

    Attributes:
        multiple: The multiple: positive for an upper bound, negative for a lower one.
        average: Whether the bound is the average over all models of the batch.
    """

    def __init__(
        self,
        view: ExactGPView,
        multiple: float,
        domain: RobustDomain,
        average: bool = False,
    ) -> None:
        """Read the moments of a model.

        Args:
            view: The model, of any batch shape.
            multiple: The multiple of the standard deviation.
            domain: The domain of the bound.
            average: Whether to average the bounds of all models of the batch.
        """
        super().__init__()
        self.register_buffer("width", domain.bounds[1] - domain.bounds[0])
        self.view = view
        self.mean = posterior_mean(view, domain)
        self.multiple = multiple
        self.average = average
        self.sample_shape = torch.Size([1]) if average else self.mean.sample_shape
        self.dim = self.mean.dim
        self.lengthscale = self.mean.lengthscale

    def forward(self, z: Tensor) -> Tensor:
        """Evaluate the bound.

        Args:
            z: Points in the user's units that broadcast with ``1 x batch_shape x n x
                d``; the ``batch_shape`` of an average is empty.

        Returns:
            ``1 x batch_shape x n`` values in the user's units.
        """
        if self.average:
            z = z.reshape(z.shape[-2:])
        points = self.view.transform_inputs(z)
        variance = self.view.variance(points).clamp_min(0.0)
        # The derivative of the root needs a variance that is not zero.
        floor = torch.finfo(z.dtype).eps * self.view.prior_variance(points)
        deviation = self.view.outcome_scale * (variance + floor).sqrt()
        bound: Tensor = self.mean(z) + self.multiple * deviation
        return (
            bound.flatten(end_dim=-2).mean(0, keepdim=True) if self.average else bound
        )


class StableOpt(AcquisitionFunction):
    r"""The two-stage rule of [Bogunovic2018adversarially]_.

    ``optimize`` returns the next point. As an acquisition function it is the first
    stage of the rule: the (negative) worst case of the optimistic bound, to be
    maximised over ``x``. It does not depend on ``theta``.
    """

    def __init__(
        self,
        model: Model,
        domain: RobustDomain,
        beta: float = 4.0,
        maximize: bool = True,
        posterior_transform: PosteriorTransform | None = None,
        constraints: OutcomeConstraints | None = None,
        objective_index: int = 0,
    ) -> None:
        r"""Make the confidence bounds.

        Args:
            model: A fitted exact single-output model: single, batched or an ensemble.
                With constraints a model of several independent outputs.
            domain: Which columns are controllable, and the values they can take.
            beta: The square of the bounds' width in standard deviations.
            maximize: If ``True``, maximise the minimum over ``theta``. If ``False``,
                minimise the maximum over ``theta``.
            posterior_transform: A ``ScalarizedPosteriorTransform`` of one weight. A
                negative weight reverses the direction.
            constraints: The lower and the upper bound of each constrained output, one
                of them possibly ``None``, which must hold for all ``theta``.
            objective_index: The output to optimise.

        Example:
            >>> candidate, value = StableOpt(model, domain, maximize=False).optimize()
        """
        super().__init__(model=model)
        check_number("beta", beta, 0.0)
        limits = read_constraints(
            model, constraints, objective_index, posterior_transform
        )
        negate = maximize != is_negating(posterior_transform)
        own = model if constraints is None else single_output(model, objective_index)
        view = ExactGPView(own, negate=negate)
        self.domain = match_domain(domain, view)
        self.optimistic, self.pessimistic = (
            ConfidenceBound(view, multiple, self.domain, average=is_ensemble(model))
            for multiple in (-(beta**0.5), beta**0.5)
        )
        distances = [
            distance
            for index, bounds in limits.items()
            for distance in beyond_bounds(model, index, bounds)
        ]
        self.optimistic_constraints, self.pessimistic_constraints = (
            ModuleList(
                AffineFunction(
                    ConfidenceBound(
                        own, multiple, self.domain, average=is_ensemble(model)
                    ),
                    1.0,
                    offset.mean() if is_ensemble(model) else offset,
                )
                for own, offset in distances
            )
            for multiple in (-(beta**0.5), beta**0.5)
        )
        self.solver = WorstCaseSolver(self.optimistic, self.domain)

    @t_batch_mode_transform(expected_q=1, assert_output_shape=False)  # type: ignore[arg-type]
    def forward(self, X: Tensor) -> Tensor:
        """The worst case of the optimistic bound, negated so that more is better.

        It is minus infinity where the optimistic bound of a constraint is violated.

        Args:
            X: ``n x 1 x d`` points in the user's units.

        Returns:
            ``n`` values, or ``batch_shape x n`` for a batch of models that is not an
            ensemble.
        """
        if X.ndim != 3:
            raise UnsupportedError(
                f"Expected `X` of shape n x 1 x d, got shape {tuple(X.shape)}."
            )
        found = self._problem()(self.domain.setting(X.squeeze(-2)))
        value = torch.where(found.is_feasible, found.value, torch.inf)
        return -value.squeeze(0)

    def _problem(self, pessimistic: bool = False) -> RobustProblem:
        """The problem of the optimistic, or of the pessimistic, bounds."""
        objective, constraints = self.solver, self.optimistic_constraints
        if pessimistic:
            objective = WorstCaseSolver(self.pessimistic, self.domain)
            constraints = self.pessimistic_constraints
        others = [own for own in constraints if isinstance(own, AffineFunction)]
        return RobustProblem(
            objective, [WorstCaseSolver(own, self.domain) for own in others]
        )

    def optimize(self) -> tuple[Tensor, Tensor]:
        """Find the next point.

        With constraints, ``x`` is the best one that may be feasible by the optimistic
        bounds. If a constraint can be violated there by the pessimistic bounds,
        ``theta`` is where it is violated most.

        Returns:
            The ``batch_shape x 1 x d`` candidates and the ``batch_shape`` values of the
            first stage there. An ensemble has a single candidate.
        """
        problem = self._problem()
        first = constrained_robust_optimum(problem.objective, problem.constraints)
        second = self._problem(pessimistic=True)(first.x.unsqueeze(-2))
        theta = second.critical_theta.squeeze(-2)
        candidates = self.domain.join(first.x, theta)
        candidates = self.domain.nearest_evaluation(candidates)
        return candidates.movedim(0, -2), -first.value.squeeze(0)
