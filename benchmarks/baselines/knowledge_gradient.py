r"""The knowledge gradient, which is not robust.

BoTorch's ``qKnowledgeGradient`` finds a candidate and, for each imagined observation
there, the point that will then look best, all in one search of a box. A robust domain
may be finite, and its best points then have to be members of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.acquisition.knowledge_gradient import qKnowledgeGradient
from botorch.models import SingleTaskGP
from torch import Tensor

from benchmarks.baselines.non_robust import NonRobustStrategy
from botorch_res.checks import at_least
from botorch_res.models import ExactGPView
from botorch_res.strategies import register_strategy


class DiscreteKnowledgeGradient(qKnowledgeGradient):
    """BoTorch's knowledge gradient with the later best points taken from a set."""

    def __init__(self, model: SingleTaskGP, points: Tensor, **kwargs: Any) -> None:
        """Take over the set.

        Args:
            model: The model.
            points: The ``n x d`` set; the candidate and the training inputs belong to
                it, too.
            **kwargs: Further arguments of ``qKnowledgeGradient``.
        """
        super().__init__(model, **kwargs)
        self.view = ExactGPView(model)
        self.points = torch.cat([points, self.view.train_inputs])
        with torch.no_grad():
            self.projection = self._project(self.points)

    def forward(self, X: Tensor) -> Tensor:
        """Evaluate the knowledge gradient of single candidates.

        Args:
            X: ``b x 1 x d`` candidates.

        Returns:
            The ``b`` expectations of the largest posterior mean.
        """
        with torch.no_grad():
            best = self._best_later(X)
        choices = torch.cat([self.points.expand(len(X), -1, -1), X], dim=-2)
        chosen = choices.take_along_dim(best.unsqueeze(-1), dim=-2)
        value: Tensor = super().forward(torch.cat([X, chosen], dim=-2))
        return value

    def _best_later(self, X: Tensor) -> Tensor:
        """Which choice has the largest mean after each imagined observation.

        BoTorch could imagine a model for each and ask it for the mean of all choices.
        The mean is linear in the observation, which takes one matrix product.

        Args:
            X: ``b x 1 x d`` candidates.

        Returns:
            ``b x num_fantasies`` indices of the set, or one more for the candidate.
        """
        if self.X_pending is not None:
            X = torch.cat([X, self.X_pending.expand(len(X), -1, -1)], dim=-2)
        model: Any = self.model
        noisy = model.posterior(X, observation_noise=True)
        imagined = self.get_posterior_samples(noisy) - noisy.mean
        gain = torch.linalg.solve(noisy.distribution.covariance_matrix, imagined)
        projection = self._project(X)
        covariance = self.view.prior_covariance(self.points, X)
        covariance = covariance - self.projection.mT @ projection
        of_points = self._mean(self.projection) + (covariance @ gain).squeeze(-1)
        own = self.view.prior_covariance(X[..., :1, :], X)
        own = own - projection[..., :1].mT @ projection
        of_candidate = noisy.mean[..., 0, :] + (own @ gain).squeeze(-1)
        return torch.cat([of_points, of_candidate], dim=-1).argmax(dim=-1).mT

    def _project(self, X: Tensor) -> Tensor:
        """Whitened covariances ``... x t x n`` of the data with points."""
        return self.view.whitener @ self.view.prior_covariance(
            self.view.train_inputs, X
        )

    def _mean(self, projection: Tensor) -> Tensor:
        """Posterior means ``... x n`` of a process with zero mean."""
        return (self.view.whitened_residual.unsqueeze(-2) @ projection).squeeze(-2)


@register_strategy("knowledge_gradient")
@dataclass(eq=False, kw_only=True)
class KnowledgeGradientStrategy(NonRobustStrategy):
    """Propose the point after which the largest posterior mean will be largest.

    Attributes:
        num_fantasies: The number of imagined observations at a candidate.
        num_points: The number of points of the domain that may then look best.
    """

    num_fantasies: int = at_least(1, 16)
    num_points: int = at_least(1, 128)
    num_restarts: int = at_least(1, 4)
    raw_samples: int = at_least(1, 64)
    batch_limit = 512

    def _build(
        self,
        model: SingleTaskGP,
        points: Tensor,
        bounds: Tensor,
        X_pending: Tensor | None,
        num_members: int,
    ) -> AcquisitionFunction:
        return DiscreteKnowledgeGradient(
            model, points, num_fantasies=self.num_fantasies, X_pending=X_pending
        )
