"""Moments of a normal variable truncated to an interval, however narrow or remote."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from botorch_res.checks import check_bounds, check_finite, require
from botorch_res.probability.double_precision import widen
from botorch_res.probability.interval import StandardInterval
from botorch_res.probability.lower_bound import VarianceAbove

# Bounds, and bounds in standard deviations, are clamped to these, so that squares and
# their products with derivatives stay finite. The probability beyond is zero anyway.
FARTHEST_BOUND = 1e100
FARTHEST_SIGMAS = 1e50
# Added to variances and widths. This changes nothing but zeros.
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

    Errors are below 1e-12: the relative error of the variance, the error of the mean in
    true standard deviations (beyond the rounding of the mean itself), and the error of
    the log-probability relative to ``max(1, abs(log_prob))``. This is tested against
    mpmath for intervals from 1e-12 standard deviations to infinity wide and up to 40
    standard deviations to either side. Far beyond, errors grow slowly. Nothing is ever
    infinite or NaN. An empty interval has the log-probability of an interval 1e-100
    standard deviations wide. A zero variance returns the mean, moved into the interval.

    Differentiable once with respect to all four arguments, with finite gradients. The
    arithmetic is in float64 on the device of the arguments; results have their dtype.

    Args:
        mean: The mean, ``batch_shape``. All four arguments broadcast.
        variance: The variance, not negative.
        lower: The lower bound, possibly minus infinity.
        upper: The upper bound, possibly infinity, at least ``lower``.
        validate_args: Check the arguments. This waits for the device, so switch it off
            in a hot loop.

    Returns:
        Log-probability, mean and variance, each ``batch_shape``.

    Raises:
        InputDataError: When ``validate_args`` is set and an argument is NaN, a variance
            is negative, or a lower bound exceeds its upper bound.

    Example:
        >>> zero, one = torch.zeros(1), torch.ones(1)
        >>> moments = truncated_normal_moments(zero, one, lower=zero, upper=one)
        >>> moments.mean, moments.variance
    """
    if validate_args:
        check_finite(mean=mean, variance=variance)
        require(variance >= 0.0, "`variance` to be at least 0", variance)
        check_bounds(lower, upper)
    dtype = mean.dtype
    mean, variance, lower, upper = (
        widen(argument) for argument in (mean, variance, lower, upper)
    )
    # Rounding can make a variance negative: it counts as zero.
    sigma = (variance.clamp_min(0.0) + LEAST_VARIANCE).sqrt()
    lower = lower.clamp(-FARTHEST_BOUND, FARTHEST_BOUND)
    upper = upper.clamp(-FARTHEST_BOUND, FARTHEST_BOUND)
    left, right = in_sigmas(lower - mean, sigma), in_sigmas(upper - mean, sigma)
    width = ((upper - lower) / sigma).clamp_max(4.0 * FARTHEST_SIGMAS) + LEAST_WIDTH
    # Where the interval lies mostly to the left, it is reflected.
    near, width = torch.broadcast_tensors(torch.maximum(left, -right), width)
    sign = torch.where(left + right < 0.0, -1.0, 1.0)
    moments = StandardInterval.apply(near, width)  # type: ignore[no-untyped-call]
    log_prob, offset, shrinkage = moments
    # The point of the interval next to the mean carries the gradient of a bound.
    next_to_mean = mean.clamp(lower, upper)
    inside = hold_within(next_to_mean + sign * sigma * offset, lower, upper)
    return TruncatedMoments(
        log_prob=log_prob.to(dtype),
        mean=inside.to(dtype),
        variance=(sigma.square() * shrinkage).to(dtype),
    )


def remaining_variance(mean: Tensor, variance: Tensor, lower: Tensor) -> Tensor:
    """The share of the variance of ``x ~ N(mean, variance)`` left by ``lower <= x``.

    This is what ``truncated_normal_moments`` gives for an infinite upper bound, with
    far fewer operations. Differentiable once. For means within 1e100 of zero nothing is
    infinite or NaN.

    Args:
        mean: The mean, ``batch_shape``. All three arguments broadcast.
        variance: The variance. Negative rounding errors count as zero.
        lower: The lower bound, possibly infinite.

    Returns:
        ``batch_shape`` numbers between zero and one.
    """
    dtype = mean.dtype
    mean, variance, lower = (widen(argument) for argument in (mean, variance, lower))
    sigma = (variance.clamp_min(0.0) + LEAST_VARIANCE).sqrt()
    lower = lower.clamp(-FARTHEST_BOUND, FARTHEST_BOUND)
    bound = in_sigmas(lower - mean, sigma)
    share: Tensor = VarianceAbove.apply(bound)  # type: ignore[no-untyped-call]
    return share.to(dtype)


def in_sigmas(distance: Tensor, sigma: Tensor) -> Tensor:
    """Express a distance in standard deviations, clamped so that its square is finite.

    Args:
        distance: The distance.
        sigma: The standard deviation.

    Returns:
        The clamped ratio.
    """
    return (distance / sigma).clamp(-FARTHEST_SIGMAS, FARTHEST_SIGMAS)


def hold_within(mean: Tensor, lower: Tensor | None, upper: Tensor) -> Tensor:
    """Clamp a mean to its bounds, which it may exceed by rounding.

    Args:
        mean: The mean.
        lower: The lower bound, or ``None``.
        upper: The upper bound.

    Returns:
        The clamped mean, with the gradient of ``mean``.
    """
    with torch.no_grad():
        inside = mean.clamp(lower, upper)
    return inside + (mean - mean.detach())
