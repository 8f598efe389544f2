"""What the acquisition functions ask of their arguments."""

from __future__ import annotations

from typing import Any

from botorch.acquisition.objective import (
    PosteriorTransform,
    ScalarizedPosteriorTransform,
)
from botorch.exceptions.errors import (
    BotorchTensorDimensionError,
    InputDataError,
    UnsupportedError,
)
from torch import Tensor

from botorch_res.domain import RobustDomain
from botorch_res.models import ExactGPView
from botorch_res.optim.arguments import check_domain


def is_negating(posterior_transform: PosteriorTransform | None) -> bool:
    """Whether a posterior transform turns the direction of optimisation round.

    Args:
        posterior_transform: The user's transform, if any.

    Returns:
        Whether its weight is negative.
    """
    if posterior_transform is None:
        return False
    if not isinstance(posterior_transform, ScalarizedPosteriorTransform):
        raise UnsupportedError(
            "Expected `posterior_transform` to be a ScalarizedPosteriorTransform, got "
            f"{type(posterior_transform).__name__}."
        )
    weights: Any = posterior_transform.weights
    if weights.numel() != 1 or not bool(weights.abs() > 0):
        raise InputDataError(
            "Expected `posterior_transform` to have one weight, not zero, got "
            f"{weights.tolist()}."
        )
    return bool(weights < 0)


def match_domain(domain: RobustDomain, view: ExactGPView) -> RobustDomain:
    """Bring a domain to the dtype and device of a model.

    Args:
        domain: The user's domain.
        view: The model.

    Returns:
        The domain itself, if it fits, or a copy.
    """
    check_domain(domain)
    inputs = view.original_inputs
    if domain.dim != inputs.shape[-1]:
        raise BotorchTensorDimensionError(
            f"Expected a `domain` of {inputs.shape[-1]} columns, as many as the "
            f"model's inputs have, got {domain.dim}."
        )
    bounds = domain.bounds
    if (bounds.dtype, bounds.device) == (inputs.dtype, inputs.device):
        return domain
    return domain.to(dtype=inputs.dtype, device=inputs.device)


def check_points(name: str, points: Tensor, dim: int, leading: str) -> None:
    """Raise unless an argument is a tensor of points of the domain.

    Args:
        name: The argument's name.
        points: Its value.
        dim: The number of columns of the domain.
        leading: The shape before the columns: ``"m"``, or with any batch dimensions.
    """
    if not isinstance(points, Tensor):
        raise TypeError(
            f"Expected `{name}` to be a tensor of shape {leading} x {dim}, got "
            f"{type(points).__name__}."
        )
    if points.shape[-1:] != (dim,) or (leading == "m" and points.ndim != 2):
        raise BotorchTensorDimensionError(
            f"Expected `{name}` of shape {leading} x {dim}, got shape "
            f"{tuple(points.shape)}."
        )
