"""Single models in place of an ensemble, for what takes BoTorch models one by one."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from botorch.exceptions.errors import UnsupportedError
from botorch.models import SingleTaskGP
from gpytorch.kernels import Kernel
from gpytorch.means import ZeroMean
from torch import Tensor

from botorch_res.models.exact_gp import ExactGPView


def members(view: ExactGPView) -> list[SingleTaskGP]:
    """The members of a model, each without transforms, in the model's own space.

    Args:
        view: A model with a constant prior mean, single or an ensemble.

    Returns:
        Models of the same process less its prior mean. A constant shifts no maximum.

    Raises:
        UnsupportedError: If the prior mean is not constant.
    """
    if not view.has_constant_mean:
        raise UnsupportedError(
            "Expected a model with a ConstantMean or a ZeroMean, got "
            f"{type(view.mean_module).__name__}."
        )
    kernel: Any = view.covar_module
    if len(view.batch_shape) == 0:
        return [_single(view.train_inputs, view.residual, view.noise, kernel)]
    return [
        _single(
            view.train_inputs[i], view.residual[i], view.noise[i], _member(kernel, i)
        )
        for i in range(view.batch_shape.numel())
    ]


def _member(kernel: Any, i: int) -> Any:
    """The kernel of a member. GPyTorch would index the columns of its parts, too."""
    kernel = deepcopy(kernel)
    parts = [part for part in kernel.modules() if isinstance(part, Kernel)]
    for part in reversed(parts):  # the batch of a kernel is that of its parts, too
        if len(part.batch_shape) > 0:
            for parameter in part.parameters(recurse=False):
                parameter.data = parameter.data[i]
            part.batch_shape = torch.Size()
    return kernel


def _single(X: Tensor, y: Tensor, noise: Tensor, kernel: Any) -> SingleTaskGP:
    """A model of ``t x d`` inputs and ``t`` outcomes with zero mean."""
    model = SingleTaskGP(
        X,
        y.unsqueeze(-1),
        noise.unsqueeze(-1),
        mean_module=ZeroMean(),
        covar_module=kernel,
        outcome_transform=None,
    )
    model.eval().requires_grad_(False)
    return model
