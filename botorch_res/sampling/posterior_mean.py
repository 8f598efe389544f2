"""The posterior mean of a Gaussian process as a batch of functions."""

from __future__ import annotations

import torch
from botorch.exceptions.errors import UnsupportedError
from botorch.models.model import Model
from torch import Tensor

from botorch_res.domain import RobustDomain
from botorch_res.models import ExactGPView
from botorch_res.sampling.batch_function import BatchFunction
from botorch_res.sampling.prior_mean import add_prior_mean
from botorch_res.sampling.term_space import build_expansion, read_levels, read_spaces


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


def posterior_mean(
    model: Model | ExactGPView, domain: RobustDomain | None = None
) -> BatchFunction:
    """The posterior mean as ``1 x batch_shape`` functions, in the user's units.

    Args:
        model: An exact single-output GP such as ``SingleTaskGP``, single or batched, or
            the view of one.
        domain: The domain, which lists the values of columns in which the kernel is
            not stationary.

    Returns:
        The posterior mean. Its derivatives have a closed form if the model is one from
        which functions can be drawn, see ``draw_fourier_samples``.
    """
    view = model if isinstance(model, ExactGPView) else ExactGPView(model)
    with torch.no_grad():
        try:
            view.check_mean()
            levels = read_levels(view, domain)
        except UnsupportedError:
            return KernelMean(view)
        weights = view.mean_weights.mT
        terms = []
        for space in read_spaces(view, levels):
            own = weights
            if space.levels is not None:
                own = weights.unsqueeze(-2) * space.at_data.unsqueeze(-3)
            no_waves = space.centers[..., :0, :]
            terms.append(build_expansion(view, space, no_waves, own[..., :0], own))
        return add_prior_mean(view, levels, terms)
