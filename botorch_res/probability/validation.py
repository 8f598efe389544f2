"""Checks of the arguments of truncated normal moments and expectation propagation."""

from __future__ import annotations

import torch
from botorch.exceptions.errors import BotorchTensorDimensionError, InputDataError
from torch import Tensor


def check_interval(
    mean: Tensor, variance: Tensor, lower: Tensor, upper: Tensor
) -> None:
    """Check the arguments of ``truncated_normal_moments``.

    Args:
        mean: The mean.
        variance: The variance.
        lower: The lower bound.
        upper: The upper bound.

    Raises:
        InputDataError: When a value is not what ``truncated_normal_moments`` expects.
    """
    _check_finite(mean=mean, variance=variance)
    _require(variance >= 0.0, "`variance` to be at least 0", variance)
    _check_bounds(lower, upper)


def check_box(
    mean: Tensor, covariance: Tensor, lower: Tensor, upper: Tensor, one_sided: bool
) -> None:
    """Check the arguments of ``truncated_bvn_moments``.

    Args:
        mean: The mean.
        covariance: The covariance.
        lower: The lower bounds.
        upper: The upper bounds.
        one_sided: Whether the first variable must not have a lower bound.

    Raises:
        BotorchTensorDimensionError: When a trailing dimension is not two.
        InputDataError: When a value is not what ``truncated_bvn_moments`` expects.
    """
    for name, value, end in (
        ("mean", mean, (2,)),
        ("covariance", covariance, (2, 2)),
        ("lower", lower, (2,)),
        ("upper", upper, (2,)),
    ):
        if value.shape[-len(end) :] != end:
            raise BotorchTensorDimensionError(
                f"Expected the shape of `{name}` to end in {end}, got "
                f"{tuple(value.shape)}."
            )
    _check_finite(mean=mean, covariance=covariance)
    _check_bounds(lower, upper)
    variances = covariance.diagonal(dim1=-2, dim2=-1)
    _require(
        variances >= 0.0, "the diagonal of `covariance` to be at least 0", variances
    )
    # Half the digits: covariances are often differences, rounded before they cancel.
    above, below = covariance[..., 0, 1], covariance[..., 1, 0]
    largest = variances.sqrt().prod(-1)
    tolerance = torch.finfo(covariance.dtype).eps ** 0.5 * largest
    _require(
        (above - below).abs() <= tolerance,
        "`covariance` to be symmetric",
        above,
        below,
    )
    _require(
        above.abs() <= largest + tolerance,
        "`covariance` to be positive semi-definite, its off-diagonal element at most "
        "the square root of the product of the variances",
        above,
        largest,
    )
    if one_sided:
        _require(
            lower[..., 0] == -torch.inf,
            "the first element of `lower` to be minus infinity with `one_sided`",
            lower[..., 0],
        )


def check_constraint_shapes(
    mean: Tensor, covariance: Tensor, lower: Tensor, upper: Tensor, pseudo_noise: Tensor
) -> None:
    """Check shapes and dtypes of the arguments of ``expectation_propagation``.

    Args:
        mean: The means.
        covariance: The covariances.
        lower: The lower bounds.
        upper: The upper bounds.
        pseudo_noise: The variances by which the constraints are softened.

    Raises:
        BotorchTensorDimensionError: When the shapes do not fit.
        InputDataError: When a moment has no floating-point dtype.
    """
    shape = tuple(mean.shape)
    if mean.ndim == 0 or shape[-1] == 0:
        raise BotorchTensorDimensionError(
            f"Expected `mean` to have the shape `batch_shape x n`, got {shape}."
        )
    for name, value, expected in (
        ("covariance", covariance, (*shape, shape[-1])),
        ("lower", lower, shape),
        ("upper", upper, shape),
        ("pseudo_noise", pseudo_noise, shape if pseudo_noise.ndim > 0 else ()),
    ):
        if value.shape != expected:
            raise BotorchTensorDimensionError(
                f"Expected `{name}` to have the shape {expected} for a `mean` of shape "
                f"{shape}, got {tuple(value.shape)}."
            )
    for name, value in (("mean", mean), ("covariance", covariance)):
        if not value.is_floating_point():
            raise InputDataError(
                f"Expected `{name}` to have a floating-point dtype, got {value.dtype}."
            )


def check_constraint_values(
    mean: Tensor, covariance: Tensor, lower: Tensor, upper: Tensor, pseudo_noise: Tensor
) -> None:
    """Check the values of the arguments of ``expectation_propagation``.

    Args:
        mean: The means.
        covariance: The covariances.
        lower: The lower bounds.
        upper: The upper bounds.
        pseudo_noise: The variances by which the constraints are softened.

    Raises:
        InputDataError: When a value is not what ``expectation_propagation`` expects.
    """
    _check_finite(mean=mean, covariance=covariance, pseudo_noise=pseudo_noise)
    _require(lower < torch.inf, "`lower` to be less than infinity", lower)
    _require(upper > -torch.inf, "`upper` to be greater than minus infinity", upper)
    _check_bounds(lower, upper)
    _require(pseudo_noise >= 0.0, "`pseudo_noise` to be at least 0", pseudo_noise)
    variances = covariance.diagonal(dim1=-1, dim2=-2)
    largest = variances.amax(dim=-1, keepdim=True)
    _require(
        variances >= -1e-6 * largest,
        "the diagonal of `covariance` to be at least 0",
        variances,
    )
    # Wide enough for any rounding; this finds a factor in place of a covariance.
    _require(
        (covariance - covariance.mT).abs() <= 0.1 * largest.unsqueeze(-1),
        "`covariance` to be symmetric",
        covariance,
        covariance.mT,
    )


def _check_finite(**arguments: Tensor) -> None:
    """Require all values of all arguments to be finite."""
    for name, value in arguments.items():
        _require(value.isfinite(), f"`{name}` to be finite", value)


def _check_bounds(lower: Tensor, upper: Tensor) -> None:
    """Require bounds that are numbers, in the right order."""
    for name, value in (("lower", lower), ("upper", upper)):
        _require(value.isnan().logical_not(), f"`{name}` to be a number", value)
    lower, upper = torch.broadcast_tensors(lower, upper)
    _require(lower <= upper, "`lower` to be at most `upper`", lower, upper)


def _require(fulfilled: Tensor, expectation: str, *values: Tensor) -> None:
    """Raise an error that quotes the first values for which something is not so."""
    if not fulfilled.all():
        wrong = fulfilled.logical_not()
        index = tuple(wrong.nonzero()[0].tolist())
        got = " and ".join(str(value[index].item()) for value in values)
        raise InputDataError(
            f"Expected {expectation}, got {got} at index {index} "
            f"({int(wrong.sum())} of {wrong.numel()} elements are wrong)."
        )
