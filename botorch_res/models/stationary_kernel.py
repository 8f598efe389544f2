r"""Dense evaluation of the stationary kernels, without a host synchronisation.

GPyTorch asks ``torch.equal`` of the two sets of points in every evaluation. On a GPU
that waits for the device, and on a CPU its lazy tensors cost several times the
arithmetic. The squared exponential and Matern kernels, with or without scale and ARD,
are therefore evaluated here from hyperparameters read once; every other kernel goes
through GPyTorch.

With ``s`` the squared distance of two points in units of the lengthscales, and
``r = sqrt(2 nu s)``, the kernels are ``exp(-s / 2)`` and, for ``nu`` of 1/2, 3/2 and
5/2, ``p(r) exp(-r)`` with ``p`` equal to ``1``, ``1 + r`` and ``1 + r + r^2 / 3``.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from torch import Tensor
from torch.nn import Module


class StationaryKernel(Module):
    """The values of a squared exponential or Matern kernel.

    Attributes:
        smoothness: Matern's ``nu``; infinite for the squared exponential.
        lengthscale: ``batch_shape x 1 x d`` (or ``1``) lengthscales.
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

    def matrix(self, X1: Tensor, X2: Tensor) -> Tensor:
        """Covariance of all pairs of points.

        Args:
            X1: ``... x batch_shape x n x d`` points.
            X2: ``... x batch_shape x m x d`` points.

        Returns:
            ``... x batch_shape x n x m`` covariances.
        """
        X1, X2 = X1 / self.lengthscale, X2 / self.lengthscale
        if self.smoothness == 0.5:
            # This kernel is linear in the distance, so that an error of 1e-16 in the
            # squared distance of neighbours would be one of 1e-8 in the covariance.
            mode = "donot_use_mm_for_euclid_dist"
            values = torch.cdist(X1, X2, compute_mode=mode).neg().exp()
        else:
            values = self._profile(_squared_distance(X1, X2))
        return self.outputscale.unsqueeze(-1) * values

    def pairs(self, X1: Tensor, X2: Tensor) -> Tensor:
        """Covariance of each point of the first set with its partner in the second.

        Args:
            X1: ``... x batch_shape x n x d`` points.
            X2: ``... x batch_shape x n x d`` points.

        Returns:
            ``... x batch_shape x n`` covariances.
        """
        difference = (X1 - X2) / self.lengthscale
        return self.outputscale * self._profile(difference.square().sum(dim=-1))

    def variance(self, X: Tensor) -> Tensor:
        """Variance of the prior at each point.

        Args:
            X: ``... x batch_shape x n x d`` points.

        Returns:
            ``... x batch_shape x n`` variances.
        """
        shape = torch.broadcast_shapes(X.shape[:-1], self.outputscale.shape)
        return self.outputscale.expand(shape)

    def _profile(self, squared_distance: Tensor) -> Tensor:
        """The correlation as a function of the squared distance."""
        if math.isinf(self.smoothness):
            return torch.exp(-0.5 * squared_distance)
        # The bound keeps the derivative of the square root finite; correlations do
        # not feel it.
        scaled = 2.0 * self.smoothness * squared_distance
        distance = scaled.clamp_min(torch.finfo(scaled.dtype).tiny).sqrt()
        decay = torch.exp(-distance)
        if self.smoothness == 0.5:
            return decay
        if self.smoothness == 1.5:
            return (1.0 + distance) * decay
        return (1.0 + distance + scaled / 3.0) * decay


def read_stationary_kernel(kernel: Any) -> StationaryKernel | None:
    """Read a GPyTorch kernel.

    Args:
        kernel: Any GPyTorch kernel.

    Returns:
        Its fast equivalent, or ``None`` if there is none.
    """
    scaled = type(kernel) is ScaleKernel
    base = kernel.base_kernel if scaled else kernel
    # Exact types: a subclass may compute something else.
    if type(base) not in (RBFKernel, MaternKernel):
        return None
    if kernel.active_dims is not None or base.active_dims is not None:
        return None
    lengthscale = base.lengthscale
    smoothness = base.nu if type(base) is MaternKernel else math.inf
    one = torch.ones_like(lengthscale[..., 0])
    outputscale = kernel.outputscale.unsqueeze(-1) if scaled else one
    return StationaryKernel(smoothness, lengthscale, outputscale)


def _squared_distance(X1: Tensor, X2: Tensor) -> Tensor:
    """Squared Euclidean distances as one matrix product, ``... x n x m``."""
    center = X2.mean(dim=-2, keepdim=True)
    X1, X2 = X1 - center, X2 - center
    norm1 = X1.square().sum(dim=-1, keepdim=True)
    norm2 = X2.square().sum(dim=-1, keepdim=True)
    left = torch.cat([-2.0 * X1, norm1, torch.ones_like(norm1)], dim=-1)
    right = torch.cat([X2, torch.ones_like(norm2), norm2], dim=-1)
    return (left @ right.mT).clamp_min(0.0)
