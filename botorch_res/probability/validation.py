"""Checks of the arguments of truncated normal moments."""

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
        InputDataError: When an argument is NaN, the mean or the variance is infinite,
            a variance is negative, or a lower bound exceeds its upper bound.
    """
    _check_finite(mean=mean, variance=variance)
    _refuse(variance < 0.0, "`variance` must not be negative", variance)
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
        InputDataError: When a value is not what ``truncated_bvn_moments`` asks for.
    """
    for name, value, ends_in in (
        ("mean", mean, (2,)),
        ("covariance", covariance, (2, 2)),
        ("lower", lower, (2,)),
        ("upper", upper, (2,)),
    ):
        if value.shape[-len(ends_in) :] != ends_in:
            raise BotorchTensorDimensionError(
                f"The shape of `{name}` must end in {ends_in}, but is "
                f"{tuple(value.shape)}."
            )
    _check_finite(mean=mean, covariance=covariance)
    _check_bounds(lower, upper)
    variances = covariance.diagonal(dim1=-2, dim2=-1)
    _refuse(
        variances < 0.0, "The diagonal of `covariance` must not be negative", variances
    )
    # Half the digits: covariances are often differences, rounded before they cancel.
    above, below = covariance[..., 0, 1], covariance[..., 1, 0]
    largest = variances.sqrt().prod(-1)
    tolerance = torch.finfo(covariance.dtype).eps ** 0.5 * largest
    _refuse(
        (above - below).abs() > tolerance,
        "`covariance` must be symmetric",
        above,
        below,
    )
    _refuse(
        above.abs() > largest + tolerance,
        "`covariance` must be positive semi-definite, the off-diagonal element at most "
        "the square root of the product of the variances",
        above,
        largest,
    )
    if one_sided:
        _refuse(
            lower[..., 0] != -torch.inf,
            "With `one_sided` the first of `lower` must be minus infinity",
            lower[..., 0],
        )


def _check_finite(**arguments: Tensor) -> None:
    for name, value in arguments.items():
        _refuse(value.isfinite().logical_not(), f"`{name}` must be finite", value)


def _check_bounds(lower: Tensor, upper: Tensor) -> None:
    for name, value in (("lower", lower), ("upper", upper)):
        _refuse(value.isnan(), f"`{name}` must not be NaN", value)
    lower, upper = torch.broadcast_tensors(lower, upper)
    _refuse(lower > upper, "`lower` must not exceed `upper`", lower, upper)


def _refuse(offending: Tensor, expectation: str, *values: Tensor) -> None:
    if offending.any():
        first = " and ".join(str(value[offending][0].item()) for value in values)
        share = f"{int(offending.sum())} of {offending.numel()} elements"
        raise InputDataError(
            f"{expectation}, but {share} violate this, the first with {first}."
        )
