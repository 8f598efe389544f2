r"""What BoTorch's own acquisition functions do with a robust problem.

The strategies built on this class look for the plain optimum over all of
``z = (x, theta)``, as if ``theta`` were ours to choose: the largest value if the
robust problem is one of maximisation, otherwise the smallest. They call BoTorch's
classes, which always see the same simple model:

- Inputs and outcomes are those of the model's own space, unit cube and order one for
  the models of ``botorch_res.models``, and the model carries no transforms. In BoTorch
  0.18.1 ``qJointEntropySearch`` transforms its optimal inputs twice,
  ``qMaxValueEntropy`` takes transformed training inputs for points in the user's
  units, and both bound variances by constants that suit outcomes of order one: without
  transforms all three are harmless.
- The outcomes are negated if the smallest value is wanted: BoTorch maximises.
- The noise is fixed, to the inferred level if it was inferred, with which BoTorch
  conditions exactly.
- Of an ensemble, each member is a model of its own, and the acquisition function is
  averaged, because ``qMaxValueEntropy`` and ``qJointEntropySearch`` take no ensembles.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.models import SingleTaskGP
from botorch.optim.optimize import optimize_acqf_discrete
from botorch.utils.safe_math import logmeanexp
from botorch.utils.transforms import normalize
from torch import Tensor
from torch.nn import ModuleList

from botorch_res.checks import at_least
from botorch_res.models import ExactGPView
from botorch_res.models.members import members
from botorch_res.optim import optimize_robust_acqf
from botorch_res.seeding import seeded
from botorch_res.strategies.base import SequentialStrategy


@dataclass(eq=False, kw_only=True)
class NonRobustStrategy(SequentialStrategy):
    """Propose the maximum of one of BoTorch's acquisition functions.

    Attributes:
        num_restarts: The number of starting points of the local search.
        raw_samples: The number of points from which these are selected.
        batch_limit: The largest number of points that are evaluated at once.
        max_members: Of an ensemble with more members, at most so many are used.
        max_pairs: Of a finite domain with more points, so many are evaluated: half of
            them anywhere, the others around the best.
        num_points: The number of points that stand for the domain; fewer if it has
            not so many.
        supports_pending: Whether ``_build`` knows what to do with pending points. If
            not, they are taken for observations of the posterior mean.
    """

    num_restarts: int = at_least(1, 8)
    raw_samples: int = at_least(1, 256)
    # Not for users to set: these follow from the method.
    batch_limit = 4096
    max_members = 1024
    max_pairs = 2**15
    num_points = 1
    supports_pending = True

    @abstractmethod
    def _build(
        self,
        model: SingleTaskGP,
        points: Tensor,
        bounds: Tensor,
        X_pending: Tensor | None,
        num_members: int,
    ) -> AcquisitionFunction:
        """Build BoTorch's acquisition function; everything is in the model's space.

        Args:
            model: A single model without transforms, whose maximum is looked for.
            points: ``n x d`` points that stand for the domain.
            bounds: ``2 x d`` bounds of the domain.
            X_pending: ``p x d`` pending points, or ``None``.
            num_members: The number of models over which the functions are averaged.

        Returns:
            The acquisition function, of one candidate at a time.
        """

    def propose_one(
        self, X: Tensor, Y: Tensor, Yvar: Tensor | None, X_pending: Tensor, seed: int
    ) -> Tensor:
        """Maximise the acquisition function.

        Args:
            X: A ``t x d`` tensor of evaluated points.
            Y: A ``t x 1`` tensor of their observed values.
            Yvar: A ``t x 1`` tensor of the noise variances, or ``None``.
            X_pending: A ``p x d`` tensor of pending points, ``p`` possibly 0.
            seed: The seed of whatever the acquisition function draws, and of the
                search.

        Returns:
            A ``1 x d`` tensor.
        """
        # BoTorch's samplers take their seeds from the global generator.
        with seeded(seed):
            acqf = self.acquisition_function(X, Y, Yvar, X_pending, seed)
            return self._maximize(acqf, seed)

    def _maximize(self, acqf: AcquisitionFunction, seed: int) -> Tensor:
        """Search the domain.

        Args:
            acqf: The acquisition function.
            seed: The seed of the search.

        Returns:
            The ``1 x d`` best point.
        """
        if self.domain.x.is_finite and self.domain.theta.is_finite:
            pairs = self.domain.all_pairs().flatten(0, 1)
            if len(pairs) > self.max_pairs:
                return self._maximize_sparsely(acqf, pairs)
        candidate, _ = optimize_robust_acqf(
            acqf,
            self.domain,
            num_restarts=self.num_restarts,
            raw_samples=self.raw_samples,
            batch_limit=self.batch_limit,
            seed=seed,
        )
        return candidate

    def _maximize_sparsely(self, acqf: AcquisitionFunction, pairs: Tensor) -> Tensor:
        """Compare random points, then those around the best of them.

        Args:
            acqf: The acquisition function.
            pairs: ``n x d`` points.

        Returns:
            The ``1 x d`` best point found.
        """
        unit = normalize(pairs, self.domain.bounds)
        order = torch.randperm(len(pairs), device=pairs.device)
        # First anywhere, then twice among the neighbours of the best point so far.
        for count in (self.max_pairs // 2, self.max_pairs // 4, self.max_pairs // 4):
            chosen = pairs[order[:count]]
            best, _ = optimize_acqf_discrete(
                acqf, q=1, choices=chosen, max_batch_size=self.batch_limit
            )
            distance = (unit - normalize(best, self.domain.bounds)).norm(dim=-1)
            order = distance.argsort()
        return best

    def acquisition_function(
        self, X: Tensor, Y: Tensor, Yvar: Tensor | None, X_pending: Tensor, seed: int
    ) -> AcquisitionFunction:
        """Build the acquisition function of points in the user's units.

        Args:
            X: A ``t x d`` tensor of evaluated points.
            Y: A ``t x 1`` tensor of their observed values.
            Yvar: A ``t x 1`` tensor of the noise variances, or ``None``.
            X_pending: A ``p x d`` tensor of points under way, ``p`` possibly 0.
            seed: The seed of the points that stand for the domain.

        Returns:
            The acquisition function.
        """
        if not self.supports_pending:
            X, Y, Yvar = self.believe(X, Y, Yvar, X_pending)
        view = ExactGPView(self.fit(X, Y, Yvar), not self.maximize, model_units=True)
        points = view.transform_inputs(self._points(seed))
        bounds = view.transform_inputs(self.domain.bounds)
        pending = view.transform_inputs(X_pending) if len(X_pending) > 0 else None
        models = members(view)
        models = models[:: math.ceil(len(models) / self.max_members)]
        return MemberAverage(
            view,
            [self._build(m, points, bounds, pending, len(models)) for m in models],
        )

    def _points(self, seed: int) -> Tensor:
        """All points of a small finite domain, or a Sobol sequence in the domain."""
        if self.domain.x.is_finite and self.domain.theta.is_finite:
            pairs = self.domain.all_pairs().flatten(0, 1)
            if len(pairs) <= self.num_points:
                return pairs
        return self.domain.sample(self.num_points, seed=seed)


class MemberAverage(AcquisitionFunction):
    """The average of acquisition functions that speak of the model's own space."""

    def __init__(
        self, view: ExactGPView, acquisition_functions: Sequence[AcquisitionFunction]
    ) -> None:
        """Take over the acquisition functions.

        Args:
            view: The way into the model's space.
            acquisition_functions: One for each member of the model.
        """
        super().__init__(model=acquisition_functions[0].model)
        self.view = view
        self.acquisition_functions = ModuleList(acquisition_functions)
        self._log = acquisition_functions[0]._log

    def forward(self, X: Tensor) -> Tensor:
        """Evaluate the average; if the functions are logarithms, that of their values.

        Args:
            X: ``batch_shape x 1 x d`` points in the user's units.

        Returns:
            ``batch_shape`` values.
        """
        points = self.view.transform_inputs(X)
        values = torch.stack([member(points) for member in self.acquisition_functions])
        average: Tensor = logmeanexp(values, dim=0) if self._log else values.mean(dim=0)
        return average
