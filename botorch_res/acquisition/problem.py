"""The direction and the domain of an acquisition function, matched to its model."""

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

from botorch_res.checks import check_type
from botorch_res.domain import RobustDomain
from botorch_res.models import ExactGPView


def is_negating(posterior_transform: PosteriorTransform | None) -> bool:
    """Whether a posterior transform reverses the direction of optimisation.

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
    """Convert a domain to the dtype and device of a model.

    Args:
        domain: The user's domain.
        view: The model.

    Returns:
        The domain itself if it fits, otherwise a copy.
    """
    check_type("domain", domain, RobustDomain)
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
