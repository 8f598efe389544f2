"""The posterior mean of a Gaussian process as a batch of functions."""

from __future__ import annotations

import torch
from botorch.models.model import Model
from torch import Tensor

from botorch_res.models import ExactGPView
from botorch_res.sampling.batch_function import BatchFunction
from botorch_res.sampling.fourier import build_expansion, read_space


class KernelMean(BatchFunction):
    """The posterior mean of a model with any kernel and prior mean."""

    weights: Tensor

    def __init__(self, view: ExactGPView) -> None:
        """Read the kernel's weights at the observations.

        Args:
            view: The model.
        """
        super().__init__()
        self.view = view
        self.register_buffer("weights", view.mean_weights)
        self.sample_shape = torch.Size([1, *view.batch_shape])
        inputs = view.original_inputs.flatten(0, -2)
        spread = inputs.amax(dim=0) - inputs.amin(dim=0)
        # A single observation tells, at best, the order of magnitude of its columns.
        size = torch.where(spread > 0, spread, inputs.abs().amax(dim=0))
        self.register_buffer("width", torch.where(size > 0, size, 1.0))

    def forward(self, z: Tensor) -> Tensor:
        """Evaluate the posterior mean.

        Args:
            z: Points that broadcast with ``1 x batch_shape x n x d``.

        Returns:
            ``1 x batch_shape x n`` values.
        """
        points = self.view.transform_inputs(z)
        covariance = self.view.prior_covariance(points, self.view.train_inputs)
        mean = self.view.prior_mean(points) + (covariance @ self.weights).squeeze(-1)
        return self.view.untransform_outcomes(mean).expand(*self.sample_shape, -1)


def posterior_mean(model: Model | ExactGPView) -> BatchFunction:
    """The posterior mean as ``1 x batch_shape`` functions, in the user's units.

    Args:
        model: An exact single-output GP such as ``SingleTaskGP``, single or batched, or
            the view of one.

    Returns:
        The posterior mean. Its derivatives have a closed form for squared exponential
        and Matern kernels with a constant prior mean.
    """
    view = model if isinstance(model, ExactGPView) else ExactGPView(model)
    kernel = view.stationary_kernel
    with torch.no_grad():
        if kernel is None or not view.has_constant_mean:
            return KernelMean(view)
        space = read_space(view, kernel)
        weights = view.mean_weights.mT
        no_waves = space.centers[..., :0, :]
        return build_expansion(view, space, no_waves, weights[..., :0], weights)
