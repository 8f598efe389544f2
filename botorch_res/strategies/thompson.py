"""Min-max Thompson sampling: the robust optimum of a function from the posterior."""

from __future__ import annotations

import torch
from botorch.models.model import Model
from torch import Tensor

from botorch_res.optim import constrained_robust_optimum
from botorch_res.sampling import draw_fourier_samples
from botorch_res.sampling.outcome_constraints import read_outputs
from botorch_res.seeding import derive_seed
from botorch_res.strategies.base import ModelStrategy, register_strategy


@register_strategy("thompson")
class ThompsonStrategy(ModelStrategy):
    """Draw functions from the posterior and propose their robust optima.

    If the functions of the constraints leave no feasible setting, theta is where the
    worst of them is violated most.

    Pending points are ignored: independent functions keep the points apart.
    """

    def _propose(
        self, model: Model, X: Tensor, X_pending: Tensor | None, n: int, seed: int
    ) -> Tensor:
        """Propose the robust optimum of one posterior function for each point."""
        points = self._optima(model, n, seed)
        points = points.movedim(0, -2).reshape(-1, X.shape[-1])
        # With an ensemble every member has drawn n functions: keep n of all of them.
        generator = torch.Generator().manual_seed(seed)
        keep = torch.randperm(len(points), generator=generator)[:n]
        return points[keep.to(points.device)]

    def propose_batch(self, X: Tensor, Y: Tensor, seeds: list[int]) -> Tensor:
        """Propose the next point of each of several runs.

        Args:
            X: An ``S x t x d`` tensor of evaluated points.
            Y: An ``S x t x 1`` tensor of their observed values.
            seeds: The ``S`` seeds of the runs.

        Returns:
            An ``S x d`` tensor.
        """
        return self._optima(self.fit(X, Y), 1, seeds).squeeze(0)

    def _optima(self, model: Model, n: int, seed: int | list[int]) -> Tensor:
        """The ``n x batch_shape x d`` robust optima of functions drawn from a model."""
        readings = read_outputs(model, self.constraints, 0, self.maximize)
        function, *limits = (
            channel
            for i, reading in enumerate(readings)
            for channel in reading.channels(
                draw_fourier_samples(
                    reading.view, n, seed=derive_seed(seed, i), domain=self.domain
                )
            )
        )
        optimum = constrained_robust_optimum(function, limits, self.domain)
        z = self.domain.join(optimum.x, optimum.critical_theta)
        return self.domain.nearest_evaluation(z)
