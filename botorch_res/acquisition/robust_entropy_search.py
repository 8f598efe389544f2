r"""Robust Entropy Search: information about the robust optimum.

The goal is the robust optimum ``f* = min_x g(x)``. Here ``g(x) = f(x, h(x))`` is the
worst-case value and ``h(x) = argmax_theta f(x, theta)`` the worst case. The acquisition
function is the information about the goal from an observation at ``z = (x, theta)``,

    alpha(z) = 1/2 log(v(z) + s2) - 1/(2C) sum_c log(v_c(z) + s2),

with the posterior variance ``v``, the noise variance ``s2``, and the variance ``v_c``
given the target of the ``c``-th function drawn from the posterior. The target is one of

- ``"characteristics"``, as in [Weichert2024robust]_: the functions ``h_c`` and ``g_c``
  and the value ``f*_c``. An observation is then informative if it tells about any worst
  case, even for an ``x`` that is certainly not the best one.
- ``"optimum"``: the robust optimum ``(x*_c, theta*_c, f*_c)`` alone, like joint entropy
  search for plain optima. On Branin this ends with less regret (see ``benchmarks``).

Three steps lead to ``v_c``:

1. Expectation propagation conditions on ``f*_c <= f(x_i, h_c(x_i))`` at the data. For
   the characteristics it also conditions on ``f(z_i) <= g_c(x_i)`` and
   ``f(x_i, h_c(x_i)) <= g_c(x_i)``. For the optimum it also conditions on
   ``f(x*_c, theta) = f*_c`` at the worst case and those that tie with it, and on
   ``f(x*_c, theta) <= f*_c`` at other local worst cases.
2. The scalar sites of step 1 are pseudo-observations. Given these, the process predicts
   the pair ``[f(x, theta), f(x, h_c(x))]`` at the candidate.
3. The pair is truncated to ``f*_c <= f(x, h_c(x))``. For the characteristics, both
   values are also at most ``g_c(x)``. ``v_c(z)`` is the variance of the first value.

Where two thetas tie, ``h_c(x)`` jumps from one to the other, and with it the partner in
the pair. To be continuous there, the moments of the pair are averages over both
partners. Their weights shift from one to the other while the gap between their values
is less than a hundredth of the prior standard deviation. With one column of theta, the
gap must also be less than the depth of the valley between them, because a new local
worst case appears with a valley of depth zero.

Small jumps remain with several columns of theta, for which the depth is unknown. They
also remain between worst cases that are closer than the search grid, which happens for
rough functions. A worst case that is about to vanish can be so flat that the search for
it ends early. In a tie with such a worst case, the gradient is off by up to a few
percent.

References:
.. [Weichert2024robust]
    D. Weichert, A. Kister, S. Houben, P. Link and G. Ernis. Robust Entropy Search for
    Safe Efficient Bayesian Optimization. Conference on Uncertainty in Artificial
    Intelligence, 2024.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.acquisition.objective import PosteriorTransform
from botorch.exceptions.errors import (
    BotorchTensorDimensionError,
    InputDataError,
    UnsupportedError,
)
from botorch.models.model import Model
from botorch.utils.transforms import (
    average_over_ensemble_models,
    is_ensemble,
    t_batch_mode_transform,
)
from torch import Tensor

from botorch_res.acquisition.problem import (
    check_optima,
    check_samples,
    is_negating,
    match_domain,
)
from botorch_res.acquisition.targets import LocalWorstCases, Target, find_target
from botorch_res.acquisition.truncation import tie_weights
from botorch_res.checks import check_finite, check_number, check_points, check_type
from botorch_res.domain import RobustDomain
from botorch_res.inference import expectation_propagation
from botorch_res.models import ExactGPView, StagedGP
from botorch_res.optim import RobustOptimum, WorstCaseSolver, robust_optimum
from botorch_res.optim.worst_cases.solver import LEAST_EFFORT
from botorch_res.sampling import BatchFunction, draw_fourier_samples

# Against a tolerance of 1e-6, this changes the acquisition function by less than 1e-4
# nats in most places, and after a hundred observations by up to 1e-2 in the worst. The
# error of expectation propagation itself is larger there.
EP_TOLERANCE = 1e-2
# The error of a posterior covariance, relative to the prior variance.
PSEUDO_NOISE = 1e-8
# Both of two worst cases count if the gap between them is less than this, in prior
# standard deviations. A safe choice: small against the differences that matter, but
# wide enough for the steps of an ascent.
TIE_WIDTH = 0.01
# Elements of memory for the moments of one truncated pair: 28 nodes of a few tensors.
QUADRATURE_WIDTH = 128


class qRobustEntropySearch(AcquisitionFunction):
    r"""The information gain about the robust optimum [Weichert2024robust]_.

    Everything random happens in the constructor: an instance is a deterministic,
    differentiable function of its input. Each sampled function is conditioned on its
    own values at pending points. So ``q > 1`` candidates are found one after another
    (``sequential=True`` in ``optimize_acqf``).

    Prefer ``optimize_robust_acqf``, whose ascent is made for the kinks of this function
    and for finite sets. Where two worst cases nearly tie, the value changes within a
    short distance, and a maximum may lie there. The line search of BoTorch's
    ``optimize_acqf`` can then give up with the warning ``ABNORMAL``. It did so in one
    of 24 random problems, and in none with more steps,
    ``optimize_acqf(acqf, bounds, ..., options={"maxls": 60})``.

    Attributes:
        domain: The domain, on the model's dtype and device.
        samples: The ``C x batch_shape`` sampled functions, negated if ``maximize``,
            with outcomes in the model's (for example standardised) units.
        robust_optimizers: ``C x batch_shape x d``, each sample's robust optimum
            ``(x*_c, theta*_c)`` in the user's units; in a column with a tolerance their
            sum.
        robust_settings: ``C x batch_shape x d_x``, ``x*_c`` alone.
        robust_optimal_values: ``C x batch_shape``, its value ``f*_c``, in the units of
            ``samples``.
        noise_variance: ``batch_shape``, the noise ``s2`` of an observation, in the
            square of these units.
        ep_converged: ``C x batch_shape``, whether expectation propagation converged.
        ep_num_sweeps: ``C x batch_shape``, the number of its sweeps.
    """

    robust_optimizers: Tensor
    robust_settings: Tensor
    robust_optimal_values: Tensor
    _sampled_optimizers: Tensor
    _sampled_settings: Tensor
    _sampled_values: Tensor
    ep_converged: Tensor
    ep_num_sweeps: Tensor

    def __init__(
        self,
        model: Model,
        domain: RobustDomain,
        num_samples: int = 16,
        maximize: bool = True,
        posterior_transform: PosteriorTransform | None = None,
        X_pending: Tensor | None = None,
        target: str | Target = "optimum",
        num_features: int = 512,
        method: str = "matheron",
        effort: float = 1.0,
        max_elements: int = 2**22,
        seed: int | Sequence[int] | None = None,
        samples: BatchFunction | None = None,
        optima: RobustOptimum | None = None,
    ) -> None:
        r"""Draw function samples, find their robust optima and condition on them.

        Args:
            model: A fitted exact single-output model such as ``SingleTaskGP``: single,
                batched or an ensemble.
            domain: Which columns are controllable, and the values they can take.
            num_samples: The number ``C`` of function samples.
            maximize: If ``True``, maximise the minimum over ``theta``. If ``False``,
                minimise the maximum over ``theta``.
            posterior_transform: A ``ScalarizedPosteriorTransform`` of one weight. A
                negative weight reverses the direction.
            X_pending: ``m x d`` points that have been submitted for evaluation.
            target: What the information is about: the robust ``"optimum"`` or, as in
                the paper, all robustness ``"characteristics"``, or your own ``Target``.
            num_features: The number of Fourier features of a sample.
            method: How samples are drawn, ``"matheron"`` or ``"weight"``; see
                ``draw_fourier_samples``.
            effort: Scales how thorough the search for the samples' worst cases and
                robust optima is. For rough kernels with several continuous
                uncontrollable columns, 0.5 saves most of the time.
            max_elements: Candidates are evaluated in chunks, so that tensors have at
                most about this many elements.
            seed: Makes the samples reproducible. A batch of models can have one seed
                for each model, and then draws the samples of the single models.
            samples: ``C x batch_shape`` functions to use instead of drawing new ones.
                They are minimised over ``x`` and have the model's outcome units, like
                the attribute ``samples`` of another instance.
            optima: The robust optima of these functions, if known.

        Example:
            >>> model = SingleTaskGP(train_X, train_Y)
            >>> acqf = qRobustEntropySearch(model, domain, maximize=False, seed=0)
            >>> candidate, value = optimize_robust_acqf(acqf, domain, seed=0)
        """
        super().__init__(model=model)
        self.target = find_target(target)
        check_type("maximize", maximize, bool)
        check_number("max_elements", max_elements, 1)
        check_number("effort", effort, LEAST_EFFORT)
        negate = maximize != is_negating(posterior_transform)
        self.view = ExactGPView(model, negate=negate, model_units=True)
        self.max_elements = max_elements
        self.domain = match_domain(domain, self.view)
        self._check_pending(X_pending)
        if samples is not None:
            check_samples(samples, self.domain, self.view)
            samples = deepcopy(samples)  # which ``to`` and ``float`` change in place
        elif optima is not None:
            raise InputDataError(
                "Expected `optima` together with their `samples` only."
            )
        else:
            samples = draw_fourier_samples(
                self.view,
                num_samples,
                num_features=num_features,
                method=method,
                seed=seed,
                domain=self.domain,
            )
        self.samples = samples
        if optima is not None:
            check_optima(optima, self.domain, samples.sample_shape)
        self.solver = WorstCaseSolver(self.samples, self.domain, effort)
        if optima is None:
            # With this many steps the order of the columns does not change the optima.
            # Columns that are listed beside free ones do not count.
            mixed = (p for p in (self.domain.x, self.domain.theta) if not p.is_finite)
            dim = self.domain.dim - sum(len(part.listed) for part in mixed)
            num_steps = 2 if dim == 2 else 6
            optima = robust_optimum(self.solver, num_steps=num_steps)
        for name, value in (
            ("_sampled_optimizers", self.domain.join(optima.x, optima.theta)),
            ("_sampled_settings", optima.x),
            ("_sampled_values", optima.value),
            ("robust_optimizers", None),
            ("robust_settings", None),
            ("robust_optimal_values", None),
            ("ep_converged", None),
            ("ep_num_sweeps", None),
        ):
            self.register_buffer(name, value)
        self.set_X_pending(X_pending)

    @property
    def noise_variance(self) -> Tensor:
        """The noise variance of an observation, in the model's outcome units."""
        return self.view.observation_noise

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Condition on pending points.

        Args:
            X_pending: ``m x d`` points that have been submitted for evaluation, or
                ``None``.
        """
        self._check_pending(X_pending)
        super().set_X_pending(X_pending)
        with torch.no_grad():
            self._condition()

    def _check_pending(self, X_pending: Tensor | None) -> None:
        """Raise an error unless pending points are points of the model's dimension."""
        if X_pending is not None:
            check_points("X_pending", X_pending, self.domain.dim, "m")
            check_finite(X_pending=X_pending)

    @t_batch_mode_transform()  # type: ignore[arg-type]
    def forward(self, X: Tensor) -> Tensor:
        r"""Evaluate the information gain.

        Args:
            X: ``batch_shape x 1 x d`` points in the user's units.

        Returns:
            ``batch_shape`` values, in nats.
        """
        check_points("X", X, self.domain.dim, "batch_shape x 1")
        if X.shape[-2] != 1:
            raise UnsupportedError(
                f"Expected `X` of shape batch_shape x 1 x d, got q = {X.shape[-2]} "
                "points at once: find candidates one after another, with "
                "sequential=True in optimize_acqf or with optimize_robust_acqf."
            )
        gain: Tensor = self._gains(X)
        return gain.squeeze(0)

    @torch.no_grad()
    def at_one_setting(self, X: Tensor) -> Tensor:
        r"""Evaluate the information gain at points that differ in theta alone.

        The worst cases at their common setting are found once, which is most of the
        work.

        Args:
            X: ``batch_shape x m x d`` points in the user's units. In each batch all
                ``m`` points have the same controllable columns.

        Returns:
            ``batch_shape x m`` values, in nats, without gradients.
        """
        check_points("X", X, self.domain.dim, "batch_shape x m")
        gain: Tensor = self._gains(X)
        return gain.movedim(0, -1)

    @average_over_ensemble_models  # type: ignore[arg-type]
    def _gains(self, X: Tensor) -> Tensor:
        """Evaluate the gain at ``batch_shape x m x d`` points of common settings.

        Args:
            X: The points.

        Returns:
            ``m x batch_shape`` values.
        """
        members = self.view.batch_shape
        X = X.to(self.domain.bounds.dtype)
        if is_ensemble(self.model):
            X = X.unsqueeze(-3)
        m, dim = X.shape[-2:]
        try:
            batch_shape = torch.broadcast_shapes(X.shape[:-2], members)
        except RuntimeError as error:
            raise BotorchTensorDimensionError(
                f"Expected `X` of shape batch_shape x {m} x d, with a batch_shape that "
                f"ends in the model's, {tuple(members)}, or in ones, got shape "
                f"{tuple(X.shape)}."
            ) from error
        points = X.expand(*batch_shape, m, dim).reshape(-1, *members, m, dim)
        rows = self._rows()
        chunks = points.movedim(0, -3).split(max(1, rows // m), dim=-3)
        parts = [
            torch.cat([self._information_gain(p) for p in chunk.split(rows, -2)], -1)
            for chunk in chunks
        ]
        gain = torch.cat(parts, dim=-2).movedim((-1, -2), (0, 1))
        return gain.reshape(m, *batch_shape)

    def _information_gain(self, points: Tensor) -> Tensor:
        """Compute the gain at ``model_batch_shape x n x m x d`` points."""
        prior, conditional = self._variances(points)
        noise = self.view.noise_at(points.flatten(-3, -2))
        conditional = (conditional + noise).log().mean(dim=0)
        gain = 0.5 * ((prior + noise).log() - conditional)
        by_setting: Tensor = gain.unflatten(-1, points.shape[-3:-1])
        return by_setting

    def _variances(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the variances ``v`` and ``v_c`` at a chunk of points.

        Args:
            points: ``model_batch_shape x n x m x d`` points, ``m`` of each setting.

        Returns:
            ``... x n m`` variances.
        """
        m = points.shape[-2]
        worst = self._worst_cases(points[..., 0, :], num_branches=3)
        partners, values, depth = (
            part.repeat_interleave(m, dim=dim)
            for part, dim in zip(worst, (-2, -1, -1), strict=True)
        )
        points = points.flatten(-3, -2)
        worst_value = values[..., 0, :]
        inputs = self.view.transform_inputs(points)
        width = TIE_WIDTH * self.view.prior_variance(inputs).detach().sqrt()
        weights = tie_weights(values, depth, width)
        mean, covariance, prior = self.process.pair_posterior(
            inputs, self.view.transform_inputs(partners[..., :2, :, :].flatten(-3, -2))
        )
        shape = weights.shape[-2:]
        mean = (weights.unsqueeze(-1) * mean.unflatten(-2, shape)).sum(dim=-3)
        covariance = weights[..., None, None] * covariance.unflatten(-3, shape)
        covariance, prior = covariance.sum(dim=-4), prior[..., : shape[-1]]
        optimal_value = self.robust_optimal_values.unsqueeze(-1)

        def own_bound() -> Tensor:
            # A theta that nature cannot choose can be worse than the worst case.
            _, theta = self.domain.split(points)
            is_possible = self.domain.theta.contains(theta)
            return torch.where(is_possible, worst_value, math.inf)

        conditional = self.target.at_candidate(
            mean, covariance, optimal_value, worst_value, own_bound
        )
        return prior.clamp_min(0.0), conditional

    def _condition(self) -> None:
        """Condition the process on each sample's target, by expectation propagation."""
        members = self.view.batch_shape
        process: StagedGP = self.view
        points = self.view.original_inputs
        if self.X_pending is not None:
            pending = self.X_pending.to(points)
            values = self.samples(pending)
            pending = pending.expand(*members, *pending.shape)
            transformed = self.view.transform_inputs(pending)
            noise = self.view.noise_at(pending).expand(pending.shape[:-1])
            process = process.with_observations(transformed, values, noise)
            points = torch.cat([points, pending], dim=-2)
        partners, worst_value, _ = self._worst_cases(points, num_branches=1)
        partners, worst_value = partners.squeeze(-3), worst_value.squeeze(-2)
        x, theta = self.domain.split(points)
        x_inside = self.domain.x.contains(x)
        self._update_optima(torch.where(x_inside, worst_value, math.inf), x, partners)
        optimal = self.robust_optimal_values.unsqueeze(-1)
        # Points outside the domain obey neither the worst case nor the optimum.
        intervals = [
            self.target.at_worst_cases(
                torch.where(x_inside, optimal, -math.inf), worst_value
            )
        ]
        found = self.target.at_optimum(self._worst_cases_at_optima, optimal)
        if found is not None:
            partners = torch.cat([partners, found[0]], dim=-2)
            intervals.append(found[1])
        inside = self.domain.theta.contains(theta)
        at_data = self.target.at_observations(
            torch.where(inside, worst_value, math.inf)
        )
        partners = self.view.transform_inputs(partners)
        if at_data is None:
            mean, covariance = process.joint_posterior(partners)
        else:
            intervals.insert(0, at_data)
            mean, covariance = process.site_posterior(partners)
        lower, upper = (
            torch.cat(bounds, dim=-1) for bounds in zip(*intervals, strict=True)
        )
        # Each model has its own, so that other members of the batch do not change it.
        prior = self.view.prior_variance(partners).amax(dim=-1, keepdim=True)
        result = expectation_propagation(
            mean,
            covariance,
            lower=lower,
            upper=upper,
            pseudo_noise=PSEUDO_NOISE * prior.expand_as(mean),
            tolerance=EP_TOLERANCE,
        )
        self.process = process.with_sites(
            partners, result.site_precision, result.site_shift
        )
        self.ep_converged = result.converged
        self.ep_num_sweeps = result.num_sweeps

    def _update_optima(self, values: Tensor, x: Tensor, partners: Tensor) -> None:
        """Take the sampled robust optima, unless one of the worst cases is lower."""
        best, index = values.min(dim=-1, keepdim=True)
        index, best = index.unsqueeze(-1), best.squeeze(-1)
        sampled = self._sampled_values
        is_lower = (best < sampled).unsqueeze(-1)
        self.robust_optimal_values = torch.minimum(best, sampled)
        self.robust_optimizers, self.robust_settings = (
            torch.where(is_lower, part.take_along_dim(index, dim=-2).squeeze(-2), own)
            for part, own in (
                (partners, self._sampled_optimizers),
                (x.expand(*values.shape, -1), self._sampled_settings),
            )
        )

    def _worst_cases_at_optima(self) -> LocalWorstCases:
        """Find the local worst cases at each sample's robust optimum that can tie."""
        x = self.robust_settings.unsqueeze(-2)
        (theta, value), _ = self.solver.local_worst_cases(x, x.shape[-1] + 1)
        points = self.domain.join(x.unsqueeze(-2), theta).squeeze(-3)
        prior = self.view.prior_variance(self.view.transform_inputs(points))
        return LocalWorstCases(points, value.squeeze(-2), TIE_WIDTH * prior.sqrt())

    def _worst_cases(
        self, points: Tensor, num_branches: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Find each sample's worst cases at the controllable part of each point."""
        x = self.domain.setting(points)
        (theta, value), depth = self.solver.local_worst_cases(x, num_branches)
        points = self.domain.join(x.unsqueeze(-3), theta.transpose(-3, -2))
        return points, value.mT, depth.mT

    def _rows(self) -> int:
        """Choose the number of candidates in a chunk."""
        known = 3 * self.process.known_points.shape[-2]
        widest = max(known, len(self.solver.thetas), QUADRATURE_WIDTH)
        return max(1, self.max_elements // (self.samples.sample_shape.numel() * widest))

    def _apply(self, fn: Any, recurse: bool = True) -> qRobustEntropySearch:
        """Move to a dtype or device, including what is not a buffer."""
        dtype = self.domain.bounds.dtype
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.domain = match_domain(self.domain, self.view)
        self.solver = WorstCaseSolver(self.samples, self.domain, self.solver.effort)
        if self.X_pending is not None:
            self.X_pending = self.X_pending.to(self.view.original_inputs)
        if self.domain.bounds.dtype != dtype:
            # What is exact in double precision is not exact in single precision.
            with torch.no_grad():
                self._condition()
        return self
