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

With constraints on further outputs, the goal is the best worst case of the objective
among the ``x`` whose constraints hold in the worst case. Outputs are independent, and
the acquisition function is the sum of their terms, because an observation is one of all
outputs. Each output has its own sites and pairs. If ``x`` is feasible in a sample, the
sample says ``f*_c <= f(x, h_c(x))`` as above. If not, it says that the constraint which
it violates most is violated, ``c_j(x, h_jc(x)) >= 0``. At the robust optimum it says
``c_j(x*_c, theta) <= 0`` at the local worst cases of ``c_j``. Where the one passes into
the other, the variances are averages, too.

References:
.. [Weichert2024robust]
    D. Weichert, A. Kister, S. Houben, P. Link and G. Ernis. Robust Entropy Search for
    Safe Efficient Bayesian Optimization. Conference on Uncertainty in Artificial
    Intelligence, 2024.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

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
from torch.nn import ModuleList

from botorch_res.acquisition.channel import Channel, Ranked
from botorch_res.acquisition.feasibility import (
    known_at,
    least_values,
    shares,
    stacked,
    valid_at_optimum,
)
from botorch_res.acquisition.output import Knowledge, Output
from botorch_res.acquisition.problem import (
    check_optima,
    check_samples,
    is_negating,
    match_domain,
    with_constraints,
)
from botorch_res.acquisition.targets import Intervals, Target, find_target
from botorch_res.checks import check_finite, check_number, check_points, check_type
from botorch_res.domain import RobustDomain
from botorch_res.models import ExactGPView
from botorch_res.optim import (
    ConstrainedOptimum,
    RobustOptimum,
    WorstCaseSolver,
    constrained_robust_optimum,
)
from botorch_res.optim.robust_optima.robust_problem import best_of
from botorch_res.optim.tuples import join
from botorch_res.optim.worst_cases.solver import LEAST_EFFORT
from botorch_res.sampling import BatchFunction, draw_fourier_samples
from botorch_res.sampling.outcome_constraints import (
    OutcomeConstraints,
    read_outputs,
    samples_of_outputs,
)
from botorch_res.seeding import derive_seed

# Elements of memory for the moments of one truncated pair: 28 nodes of a few tensors.
QUADRATURE_WIDTH = 128


class Seen(NamedTuple):
    """All worst cases at the settings of observed points.

    Attributes:
        points: ``batch_shape x n x d`` points.
        inside: ``batch_shape x n`` booleans: whether the settings are in the domain.
        ranked: The worst cases of each channel.
        found: The same in the form of optima, ``C x batch_shape x n``.
    """

    points: Tensor
    inside: Tensor
    ranked: list[Ranked]
    found: ConstrainedOptimum


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
        outputs: What is known of the objective, and then of each constrained output.
        samples: The ``C x batch_shape`` sampled functions, negated if ``maximize``,
            with outcomes in the model's (for example standardised) units.
        robust_optimizers: ``C x batch_shape x d``, each sample's robust optimum
            ``(x*_c, theta*_c)`` in the user's units; in a column with a tolerance their
            sum.
        robust_settings: ``C x batch_shape x d_x``, ``x*_c`` alone.
        robust_optimal_values: ``C x batch_shape``, its value ``f*_c``, in the units of
            ``samples``.
        robust_violations: ``C x batch_shape``, the largest worst case of a constraint
            there, in the model's units: positive if the sample has no feasible ``x``,
            and minus infinity without constraints.
        noise_variance: ``batch_shape``, the noise ``s2`` of an observation, in the
            square of these units.
        ep_converged: ``C x batch_shape``, whether expectation propagation converged.
        ep_num_sweeps: ``C x batch_shape``, the number of its sweeps.
    """

    robust_optimizers: Tensor
    robust_settings: Tensor
    robust_optimal_values: Tensor
    robust_violations: Tensor
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
        samples: BatchFunction | Mapping[int, BatchFunction] | None = None,
        optima: RobustOptimum | ConstrainedOptimum | None = None,
        constraints: OutcomeConstraints | None = None,
        objective_index: int = 0,
    ) -> None:
        r"""Draw function samples, find their robust optima and condition on them.

        Args:
            model: A fitted exact single-output model such as ``SingleTaskGP``: single,
                batched or an ensemble. With constraints a ``ModelListGP`` of such
                models, or one of them with several independent outputs.
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
                the attribute ``samples`` of another instance. With constraints a
                dictionary, with such functions for every constrained output and the
                objective.
            optima: The robust optima of these functions, if known.
            constraints: The lower and the upper bound of each constrained output, one
                of them possibly ``None``, as in BoTorch's constrained acquisition
                functions. They must hold for all ``theta``. Violations are compared in
                the model's units, so standardise the outcomes.
            objective_index: The output to optimise.

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
        self.max_elements = max_elements
        negate = maximize != is_negating(posterior_transform)
        readings = read_outputs(
            model, constraints, objective_index, negate, posterior_transform
        )
        views = [reading.view for reading in readings]
        self.domain = match_domain(domain, views[0])
        self._check_pending(X_pending)
        if samples is not None:
            given = samples_of_outputs(samples, objective_index, constraints)
            for functions, view in zip(given, views, strict=True):
                check_samples(functions, self.domain, view)
            drawn = deepcopy(given)  # which ``to`` and ``float`` change in place
        elif optima is not None:
            raise InputDataError(
                "Expected `optima` together with their `samples` only."
            )
        else:
            drawn = [
                draw_fourier_samples(
                    view,
                    num_samples,
                    num_features=num_features,
                    method=method,
                    seed=derive_seed(seed, i),
                    domain=self.domain,
                )
                for i, view in enumerate(views)
            ]
        self._outputs = ModuleList(
            Output(
                reading.view,
                functions,
                [
                    Channel(own, self.domain, effort)
                    for own in reading.channels(functions)
                ],
            )
            for reading, functions in zip(readings, drawn, strict=True)
        )
        solvers = [channel.solver for channel in self._channels]
        if optima is not None:
            num = None if constraints is None else len(solvers) - 1
            check_optima(optima, self.domain, self.samples.sample_shape, num)
        else:
            # With this many steps the order of the columns does not change the optima.
            # Columns that are listed beside free ones do not count.
            mixed = (p for p in (self.domain.x, self.domain.theta) if not p.is_finite)
            dim = self.domain.dim - sum(len(part.listed) for part in mixed)
            num_steps = 2 if dim == 2 else 6
            optima = constrained_robust_optimum(
                solvers[0], solvers[1:], num_steps=num_steps
            )
        for name, value in with_constraints(optima)._asdict().items():
            self.register_buffer(f"_sampled_{name}", value)
            self.register_buffer(f"_best_{name}", None)
        for name in (
            "robust_optimizers",
            "robust_settings",
            "robust_optimal_values",
            "robust_violations",
            "ep_converged",
            "ep_num_sweeps",
        ):
            self.register_buffer(name, None)
        self.set_X_pending(X_pending)

    @property
    def outputs(self) -> list[Output]:
        """What is known of the objective, and then of each constrained output."""
        return [output for output in self._outputs if isinstance(output, Output)]

    @property
    def view(self) -> ExactGPView:
        """The model of the objective."""
        return self.outputs[0].view

    @property
    def samples(self) -> BatchFunction:
        """The samples of the objective."""
        return self.outputs[0].samples

    @property
    def solver(self) -> WorstCaseSolver:
        """The search for the worst cases of the objective's samples."""
        return self._channels[0].solver

    @property
    def _channels(self) -> list[Channel]:
        """The objective, and then each bound of each constrained output."""
        return [channel for output in self.outputs for channel in output.channels]

    @property
    def _best(self) -> ConstrainedOptimum:
        """The best that is known of each sample."""
        fields = ConstrainedOptimum._fields
        return ConstrainedOptimum(*(getattr(self, f"_best_{name}") for name in fields))

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
        work. A subclass that changes ``forward`` has to change this, too.

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
        gains = []
        for output, (prior, conditional) in zip(
            self.outputs, self._variances(points), strict=True
        ):
            noise = output.view.noise_at(points.flatten(-3, -2))
            conditional = (conditional + noise).log().mean(dim=0)
            gains.append(0.5 * ((prior + noise).log() - conditional))
        total = sum(gains[1:], start=gains[0])
        by_setting: Tensor = total.unflatten(-1, points.shape[-3:-1])
        return by_setting

    def _variances(self, points: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Compute each output's variances ``v`` and ``v_c`` at a chunk of points.

        Args:
            points: ``model_batch_shape x n x m x d`` points, ``m`` of each setting.

        Returns:
            For each output ``... x n m`` variances.
        """
        m = points.shape[-2]
        settings = points[..., 0, :]
        ranked = [channel.worst_cases(settings, 3) for channel in self._channels]
        ranked = [own.repeated(m) for own in ranked]
        points = points.flatten(-3, -2)
        best = self._best
        least = [value.unsqueeze(-1) for value in least_values(best)]
        widths = [output.tie_width(points) for output in self.outputs[1:]]
        values = [own.value[..., 0, :] for own in ranked]
        weights = shares(best, stacked(values[1:], values[0]), widths)
        return [
            output.variances(
                self.target,
                points,
                ranked[own],
                least[own],
                None if weights is None else weights[own],
            )
            for output, own in zip(self.outputs, self._slices, strict=True)
        ]

    def _condition(self) -> None:
        """Condition the outputs on each sample's target, by expectation propagation."""
        pending = self.X_pending
        seen: list[Seen] = []
        for output in self.outputs:
            # Outputs that were observed together share their settings.
            points = output.points(pending)
            same = (own for own in seen if torch.equal(own.points, points))
            seen.append(next(same, None) or self._see(points))
        self._update_optima([own.found for own in seen])
        best = self._best
        least = least_values(best)
        for output, own, channels in zip(self.outputs, seen, self._slices, strict=True):
            known = known_at(best, own.found.constraint_value, own.inside)
            output.condition(
                self.target,
                pending,
                [
                    Knowledge(
                        own.ranked[i].points.squeeze(-3),
                        own.ranked[i].value.squeeze(-2),
                        known[i],
                        self._at_optimum(output, i, least[i]),
                    )
                    for i in range(channels.start, channels.stop)
                ],
            )
        self.ep_converged = torch.stack([o.converged for o in self.outputs]).all(dim=0)
        self.ep_num_sweeps = torch.stack([o.num_sweeps for o in self.outputs]).amax(0)

    @property
    def _slices(self) -> list[slice]:
        """Where the channels of each output are among all channels."""
        sizes = [len(output.channels) for output in self.outputs]
        return [
            slice(end - n, end) for n, end in zip(sizes, accumulate(sizes), strict=True)
        ]

    def _see(self, points: Tensor) -> Seen:
        """Find all worst cases at the settings of ``batch_shape x n x d`` points."""
        ranked = [channel.worst_cases(points, 1) for channel in self._channels]
        x, _ = self.domain.split(points)
        inside = self.domain.x.contains(x)
        values = [
            torch.where(inside, own.value.squeeze(-2), math.inf) for own in ranked
        ]
        thetas = [own.theta.squeeze(-3) for own in ranked]
        found = ConstrainedOptimum(
            x.expand(*values[0].shape, -1),
            thetas[0],
            values[0],
            stacked(thetas[1:], thetas[0], dim=-2),
            stacked(values[1:], values[0]),
        )
        return Seen(points, inside, ranked, found)

    def _update_optima(self, seen: list[ConstrainedOptimum]) -> None:
        """Take the sampled robust optima, unless one of the settings seen is better."""
        fields = ConstrainedOptimum._fields
        axis = len(self.samples.sample_shape)
        sampled = ConstrainedOptimum(
            *(getattr(self, f"_sampled_{name}").unsqueeze(axis) for name in fields)
        )
        best = best_of(join([sampled, *seen], dim=axis))
        for name, value in best._asdict().items():
            setattr(self, f"_best_{name}", value)
        self.robust_optimizers = self.domain.join(best.x, best.theta)
        self.robust_settings = best.x
        self.robust_optimal_values = best.value
        self.robust_violations = best.violation

    def _at_optimum(
        self, output: Output, channel: int, least: Tensor
    ) -> tuple[Tensor, Intervals] | None:
        """What the target says about a channel at each sample's robust optimum."""
        find = partial(
            output.worst_cases_at, self._channels[channel], self.robust_settings
        )
        found = self.target.at_optimum(find, least.unsqueeze(-1))
        if found is None:
            return None
        points, intervals = found
        return points, valid_at_optimum(intervals, self._best, channel == 0)

    def _rows(self) -> int:
        """Choose the number of candidates in a chunk."""
        sizes = [output.process.known_points.shape[-2] for output in self.outputs]
        widest = max(3 * max(sizes), len(self.solver.thetas), QUADRATURE_WIDTH)
        return max(1, self.max_elements // (self.samples.sample_shape.numel() * widest))

    def _apply(self, fn: Any, recurse: bool = True) -> qRobustEntropySearch:
        """Move to a dtype or device, including what is not a buffer."""
        dtype = self.domain.bounds.dtype
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.domain = match_domain(self.domain, self.view)
        for channel in self._channels:
            channel.search_in(self.domain, channel.solver.effort)
        if self.X_pending is not None:
            self.X_pending = self.X_pending.to(self.view.original_inputs)
        if self.domain.bounds.dtype != dtype:
            # What is exact in double precision is not exact in single precision.
            with torch.no_grad():
                self._condition()
        return self
