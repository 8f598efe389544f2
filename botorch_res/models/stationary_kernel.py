r"""Dense evaluation of the stationary kernels, without a host synchronisation.

GPyTorch asks ``torch.equal`` of the two sets of points in every evaluation. On a GPU
that waits for the device, and on a CPU its lazy tensors cost several times the
arithmetic. The squared exponential and Matern kernels, with or without scale and ARD,
are therefore evaluated here from hyperparameters read once. ``kernel_sum`` finds them
in sums and products.

The formulas are those of the module ``radial``.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from botorch_res.models.radial import profile


class StationaryKernel(Module):
    """The values of a squared exponential or Matern kernel.

    Attributes:
        smoothness: Matern's ``nu``; infinite for the squared exponential.
        lengthscale: ``batch_shape x 1 x d`` (or ``1``) lengthscales. Columns with an
            infinite one do not count.
        outputscale: ``batch_shape x 1`` variance of the prior.
    """

    lengthscale: Tensor
    outputscale: Tensor

    def __init__(
        self, smoothness: float, lengthscale: Tensor, outputscale: Tensor
    ) -> None:
        """Store the hyperparameters.

        Args:
            smoothness: Matern's ``nu``; infinite for the squared exponential.
            lengthscale: ``batch_shape x 1 x d`` (or ``1``) lengthscales.
            outputscale: ``batch_shape x 1`` variance of the prior.
        """
        super().__init__()
        self.smoothness = smoothness
        self.register_buffer("lengthscale", lengthscale.detach().clone())
        self.register_buffer("outputscale", outputscale.detach().clone())

    @property
    def is_batch(self) -> bool:
        """Whether the lengthscales are those of a batch of models."""
        return self.lengthscale.ndim > 2

    @property
    def columns(self) -> list[int]:
        """The columns that count: those with a finite lengthscale."""
        counts = self.lengthscale.isfinite().flatten(0, -2).all(dim=0)
        return counts.nonzero().flatten().tolist()

    def matrix(self, X1: Tensor, X2: Tensor) -> Tensor:
        """Covariance of all pairs of points.

        Args:
            X1: ``... x batch_shape x n x d`` points.
            X2: ``... x batch_shape x m x d`` points.

        Returns:
            ``... x batch_shape x n x m`` covariances.
        """
        X1, X2 = X1 / self._unit, X2 / self._unit
        if self.smoothness == 0.5:
            # This kernel is linear in the distance, so that an error of 1e-16 in the
            # squared distance of neighbours would be one of 1e-8 in the covariance.
            mode = "donot_use_mm_for_euclid_dist"
            values = torch.cdist(X1, X2, compute_mode=mode).neg().exp()
            return self.outputscale.unsqueeze(-1) * values
        distance: Tensor = _SquaredDistance.apply(X1, X2)  # type: ignore[no-untyped-call]
        return profile(distance, self.smoothness, self.outputscale.unsqueeze(-1))

    def pairs(self, X1: Tensor, X2: Tensor) -> Tensor:
        """Covariance of each point of the first set with its partner in the second.

        Args:
            X1: ``... x batch_shape x n x d`` points.
            X2: ``... x batch_shape x n x d`` points.

        Returns:
            ``... x batch_shape x n`` covariances.
        """
        difference = (X1 - X2) / self._unit
        distance = difference.square().sum(dim=-1)
        return profile(distance, self.smoothness, self.outputscale)

    def variance(self, X: Tensor) -> Tensor:
        """Variance of the prior at each point.

        Args:
            X: ``... x batch_shape x n x d`` points.

        Returns:
            ``... x batch_shape x n`` variances.
        """
        shape = torch.broadcast_shapes(X.shape[:-1], self.outputscale.shape)
        return self.outputscale.expand(shape)

    @property
    def _unit(self) -> Tensor:
        """Lengthscales over ``sqrt(2 nu)``, so that distances are ``r``."""
        if math.isinf(self.smoothness):
            return self.lengthscale
        return self.lengthscale / math.sqrt(2.0 * self.smoothness)


class _SquaredDistance(torch.autograd.Function):
    """Squared Euclidean distances of all pairs, and their derivatives.

    The distances are made of differences. A matrix product has an error of ``1e-16`` of
    the points' squared norms, which breaks the factorisation of a covariance with
    little noise if a lengthscale is a small part of the range. The derivatives, for
    which a product is good enough, may be differentiated again.
    """

    @staticmethod
    def forward(ctx: Any, X1: Tensor, X2: Tensor) -> Tensor:
        """The distances ``... x n x m`` of ``n`` points to ``m`` others."""
        ctx.save_for_backward(X1, X2)
        mode = "donot_use_mm_for_euclid_dist"
        return torch.cdist(X1, X2, compute_mode=mode).square()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """The derivatives by both sets of points, from those by the distances."""
        X1, X2 = ctx.saved_tensors
        needs_first, needs_second = ctx.needs_input_grad
        return (
            _slope(X1, X2, gradient) if needs_first else None,
            _slope(X2, X1, gradient.mT) if needs_second else None,
        )


def _slope(own: Tensor, other: Tensor, weight: Tensor) -> Tensor:
    """The derivative of weighted squared distances by one of the sets of points."""
    center = other.mean(dim=-2, keepdim=True)
    total = weight.sum(dim=-1, keepdim=True)
    slope = (own - center) * total - weight @ (other - center)
    return (2.0 * slope).sum_to_size(own.shape)
