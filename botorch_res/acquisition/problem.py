"""The direction and the domain of an acquisition function, matched to its model."""

from __future__ import annotations

from typing import Any

import torch
from botorch.acquisition.objective import (
    PosteriorTransform,
    ScalarizedPosteriorTransform,
)
from botorch.exceptions.errors import (
    BotorchTensorDimensionError,
    InputDataError,
    UnsupportedError,
)

from botorch_res.checks import check_finite, check_like, check_type
from botorch_res.domain import RobustDomain
from botorch_res.models import ExactGPView
from botorch_res.optim import ConstrainedOptimum, RobustOptimum
from botorch_res.sampling import BatchFunction


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


def check_samples(samples: Any, domain: RobustDomain, view: ExactGPView) -> None:
    """Raise unless functions can stand for samples of a model.

    Args:
        samples: The functions.
        domain: Their domain.
        view: The model.
    """
    check_type("samples", samples, BatchFunction)
    shape, members = samples.sample_shape, view.batch_shape
    if len(shape) != 1 + len(members) or shape[1:] != members or shape[0] < 1:
        raise BotorchTensorDimensionError(
            "Expected `samples` of shape C x batch_shape with the model's "
            f"batch_shape {tuple(members)}, got {tuple(shape)}."
        )
    with torch.no_grad():
        values = samples(domain.bounds)
    if values.shape != (*shape, 2):
        raise BotorchTensorDimensionError(
            f"Expected `samples` to map two points to values of shape "
            f"{(*shape, 2)}, got shape {tuple(values.shape)}."
        )


def check_optima(
    optima: Any, domain: RobustDomain, shape: torch.Size, num_constraints: int | None
) -> None:
    """Raise unless robust optima can be those of samples.

    Args:
        optima: The optima.
        domain: The domain of the samples.
        shape: The ``sample_shape`` of the samples.
        num_constraints: The number of constraints, ``None`` if there are none.
    """
    sizes: list[tuple[int, ...]] = [(domain.x.dim,), (domain.theta.dim,), ()]
    parts = [(domain.x, "x"), (domain.theta, "theta")]
    if num_constraints is None:
        check_type("optima", optima, RobustOptimum)
    else:
        check_type("optima", optima, ConstrainedOptimum)
        sizes += [(num_constraints, domain.theta.dim), (num_constraints,)]
        parts.append((domain.theta, "constraint_theta"))
    for name, part, size in zip(optima._fields, optima, sizes, strict=True):
        check_type(f"optima.{name}", part, torch.Tensor)
        if part.shape != (*shape, *size):
            raise BotorchTensorDimensionError(
                f"Expected `optima.{name}` of shape {(*shape, *size)}, one for each of "
                f"the `samples`, got {tuple(part.shape)}."
            )
        check_like(f"optima.{name}", part, domain.bounds)
        check_finite(**{f"optima.{name}": part})
    for space, name in parts:
        values = getattr(optima, name)
        outside = ~space.contains(values)
        if outside.any():
            raise InputDataError(
                f"Expected `optima.{name}` in the domain, got "
                f"{values[outside][0].tolist()}."
            )


def with_constraints(optima: RobustOptimum | ConstrainedOptimum) -> ConstrainedOptimum:
    """Robust optima in the form of those under constraints.

    Args:
        optima: The optima, with or without constraints.

    Returns:
        The optima, with zero constraints if there are none.
    """
    if isinstance(optima, ConstrainedOptimum):
        return optima
    none = optima.theta.unsqueeze(-2)[..., :0, :], optima.value.unsqueeze(-1)[..., :0]
    return ConstrainedOptimum(*optima, *none)
