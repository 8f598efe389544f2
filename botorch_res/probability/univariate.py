"""Moments of a normal variable truncated to an interval, in any corner."""

from __future__ import annotations

from typing import NamedTuple

import torch
from botorch.exceptions.errors import InputDataError
from torch import Tensor

from botorch_res.probability.interval import StandardInterval

# Bounds, and bounds in standard deviations, are held within these, so that squares and
# their products with derivatives stay finite; the probability beyond is zero anyway.
FARTHEST_BOUND = 1e100
FARTHEST_SIGMAS = 1e50
# Added to variances and widths: invisible beside anything but zero.
LEAST_VARIANCE = 1e-200
LEAST_WIDTH = 1e-100


class TruncatedMoments(NamedTuple):
    """Moments of a truncated normal variable.

    Attributes:
        log_prob: The log-probability of the interval under the untruncated normal.
        mean: The mean of the truncated variable.
        variance: The variance of the truncated variable.
    """

    log_prob: Tensor
    mean: Tensor
    variance: Tensor


def truncated_normal_moments(
    mean: Tensor,
    variance: Tensor,
    lower: Tensor,
    upper: Tensor,
    validate_args: bool = True,
) -> TruncatedMoments:
    r"""Moments of ``x ~ N(mean, variance)`` given ``lower <= x <= upper``.

    The relative error of the variance, the error of the mean in true standard
    deviations (beyond the rounding of the mean itself) and that of the log-probability
    relative to ``max(1, abs(log_prob))`` are below 1e-12, for intervals from 1e-12
    standard deviations to infinity wide, 40 standard deviations to either side (tested
    against mpmath), and degrade gracefully far beyond. Nothing is ever infinite or NaN:
    an empty interval has the log-probability of one 1e-100 standard deviations wide; a
    zero variance gives back the mean, moved into the interval.

    Differentiable once with respect to all four arguments, with finite gradients;
    computed in float64 on the device of the arguments and returned in their dtype.

    Args:
        mean: The mean, ``batch_shape``; all four broadcast against each other.
        variance: The variance, not negative.
        lower: The lower bound, may be minus infinity.
        upper: The upper bound, may be plus infinity, at least ``lower``.
        validate_args: Check the arguments. This waits for the device: switch it off in
            a hot loop.

    Returns:
        Log-probability, mean and variance, each ``batch_shape``.

    Raises:
        InputDataError: When ``validate_args`` is set and an argument is NaN, a variance
            is negative, or a lower bound exceeds its upper bound.
    """
    if validate_args:
        check_arguments(mean, variance, lower, upper)
    dtype = mean.dtype
    mean, variance, lower, upper = (
        argument.double() for argument in (mean, variance, lower, upper)
    )
    sigma = (variance + LEAST_VARIANCE).sqrt()
    lower = lower.clamp(-FARTHEST_BOUND, FARTHEST_BOUND)
    upper = upper.clamp(-FARTHEST_BOUND, FARTHEST_BOUND)
    left = ((lower - mean) / sigma).clamp(-FARTHEST_SIGMAS, FARTHEST_SIGMAS)
    right = ((upper - mean) / sigma).clamp(-FARTHEST_SIGMAS, FARTHEST_SIGMAS)
    width = ((upper - lower) / sigma).clamp_max(4.0 * FARTHEST_SIGMAS) + LEAST_WIDTH
    # Reflected where the interval lies mostly to the left.
    near = torch.maximum(left, -right)
    sign = torch.where(left + right < 0.0, -1.0, 1.0)
    moments = StandardInterval.apply(near, width)  # type: ignore[no-untyped-call]
    log_prob, offset, shrinkage = moments
    # The point of the interval next to the mean carries the gradient of a bound.
    next_to_mean = mean.clamp(lower, upper)
    inside = next_to_mean + sign * sigma * offset
    # Rounding may carry the mean past a bound; its gradient shall not notice.
    inside = inside + (inside.clamp(lower, upper) - inside).detach()
    return TruncatedMoments(
        log_prob=log_prob.to(dtype),
        mean=inside.to(dtype),
        variance=(sigma.square() * shrinkage).to(dtype),
    )


def check_arguments(
    mean: Tensor, variance: Tensor, lower: Tensor, upper: Tensor
) -> None:
    """Raise an error that quotes the first offending value.

    Args:
        mean: The mean.
        variance: The variance.
        lower: The lower bound.
        upper: The upper bound.

    Raises:
        InputDataError: When an argument is NaN, the mean or the variance is infinite,
            a variance is negative, or a lower bound exceeds its upper bound.
    """
    for name, value in (("mean", mean), ("variance", variance)):
        _refuse(~value.isfinite(), f"`{name}` must be finite", value)
    for name, value in (("lower", lower), ("upper", upper)):
        _refuse(value.isnan(), f"`{name}` must not be NaN", value)
    _refuse(variance < 0.0, "`variance` must not be negative", variance)
    lower, upper = torch.broadcast_tensors(lower, upper)
    _refuse(lower > upper, "`lower` must not exceed `upper`", lower, upper)


def _refuse(offending: Tensor, expectation: str, *values: Tensor) -> None:
    if offending.any():
        first = " and ".join(str(value[offending][0].item()) for value in values)
        raise InputDataError(
            f"{expectation}, but {int(offending.sum())} of {offending.numel()} elements"
            f" violate this, the first with {first}."
        )
