r"""Moments of a bivariate normal truncated to a box that is open on one side.

References:

.. [Hale2008new]
    N. Hale and L. N. Trefethen. New quadrature formulas from conformal maps. SIAM
    Journal on Numerical Analysis 46(2), 2008.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from botorch.exceptions.errors import BotorchTensorDimensionError
from torch import Tensor

from botorch_res.checks import check_bounds, check_finite, require
from botorch_res.probability.box_moments import BoxMoments
from botorch_res.probability.double_precision import two_difference, two_product, widen
from botorch_res.probability.univariate import (
    FARTHEST_BOUND,
    FARTHEST_SIGMAS,
    LEAST_WIDTH,
    hold_within,
    in_sigmas,
)

# Added to variances. Its square does not underflow; that of LEAST_VARIANCE does.
_LEAST_SQUARABLE_VARIANCE = 1e-140
# The least ratio of the determinant to the product of the variances: the unit
# roundoff of float64.
_LEAST_DETERMINANT = 2.0**-53


class TruncatedBivariateMoments(NamedTuple):
    """Moments of a truncated bivariate normal variable.

    Attributes:
        log_prob: The log-probability of the box under the untruncated normal.
        mean: The mean of the truncated variable, ``batch_shape x 2``.
        covariance: The covariance of the truncated variable, ``batch_shape x 2 x 2``.
    """

    log_prob: Tensor
    mean: Tensor
    covariance: Tensor


def truncated_bvn_moments(
    mean: Tensor,
    covariance: Tensor,
    lower: Tensor,
    upper: Tensor,
    validate_args: bool = True,
) -> TruncatedBivariateMoments:
    r"""Moments of ``x ~ N(mean, covariance)`` given ``x <= upper, lower <= x_2``.

    Only the second variable has a lower bound. Robust Entropy Search needs no other
    box, and calls this function once for each candidate and sample.

    In float64, errors are below 1e-10 (those of the first variance below 1e-11): the
    relative errors of the variances, the error of the correlation, the errors of the
    means in true standard deviations (beyond the rounding of the means themselves), and
    the error of the log-probability relative to ``max(1, abs(log_prob))``. This holds
    for any correlation, width and place of the box. It is tested against mpmath for
    1 - abs(rho) from 1e-12, widths from 1e-8, boxes up to 40 standard deviations out,
    and their combinations. Nothing is infinite or NaN: a zero variance, a correlation
    of exactly one and an empty interval give the limits. There, an empty interval has
    the log-probability of an interval 1e-100 standard deviations wide, and the
    determinant of the covariance is at least 1e-16 of the product of the variances.

    Differentiable once with respect to all four arguments. Gradients are finite, and
    those of infinite bounds are zero. The arithmetic is in float64 on the device of the
    arguments; results have their dtype. No operation depends on values or waits for the
    device.

    Args:
        mean: The mean, ``batch_shape x 2``. The batch shapes of all four arguments
            broadcast.
        covariance: The covariance, ``batch_shape x 2 x 2``, possibly singular.
        lower: The lower bound of the second variable, ``batch_shape``, possibly minus
            infinity.
        upper: The upper bounds of both variables, ``batch_shape x 2``, possibly
            infinity. The second is at least ``lower``.
        validate_args: Check the arguments. This waits for the device, so switch it off
            in a hot loop.

    Returns:
        Log-probability, mean and covariance.

    Raises:
        BotorchTensorDimensionError: When ``validate_args`` is set and the trailing
            dimensions are not as above.
        InputDataError: When ``validate_args`` is set and an argument is NaN, the mean
            or the covariance is infinite, the lower bound exceeds the upper bound, or
            the covariance is not symmetric or not positive semi-definite beyond
            rounding.

    Example:
        >>> mean, covariance = torch.zeros(2), torch.tensor([[1.0, 0.8], [0.8, 1.0]])
        >>> lower, upper = torch.tensor(0.0), torch.tensor([1.0, 1.0])
        >>> moments = truncated_bvn_moments(mean, covariance, lower, upper)
        >>> moments.covariance[0, 0]
    """
    if validate_args:
        _check(mean, covariance, lower, upper)
    normal = _split(mean, covariance, lower, upper)
    problem, sigma = _standardise(normal)
    outcome = BoxMoments.apply(*problem)  # type: ignore[no-untyped-call]
    log_prob, y_mean, y_variance, x_mean, variance_1, xy, *rest = outcome
    base, on_left, on_right, high = rest
    # Where the base lies on a bound, it has that bound's gradient.
    place_2 = normal.mean_2 + sigma * base
    place_2 = torch.where(on_right, normal.upper_2, place_2)
    place_2 = torch.where(on_left, normal.lower_2, place_2)
    regression = normal.cross / normal.variance_2
    place_1 = normal.mean_1 + regression * (place_2 - normal.mean_2)
    place_1 = torch.where(high < 0.0, normal.upper_1, place_1)
    upper_1, upper_2 = upper.unbind(-1)
    mean_1 = hold_within(place_1 + x_mean, None, upper_1)
    mean_2 = hold_within(normal.sign * (place_2 + sigma * y_mean), lower, upper_2)
    xy = normal.sign * sigma * xy
    variances = variance_1, xy, xy, normal.variance_2 * y_variance
    return TruncatedBivariateMoments(
        log_prob=log_prob.to(mean.dtype),
        mean=torch.stack((mean_1, mean_2), -1).to(mean.dtype),
        covariance=torch.stack(variances, -1).unflatten(-1, (2, 2)).to(mean.dtype),
    )


def _check(mean: Tensor, covariance: Tensor, lower: Tensor, upper: Tensor) -> None:
    """Raise an error unless ``truncated_bvn_moments`` can use the arguments."""
    for name, value, end in (
        ("mean", mean, (2,)),
        ("covariance", covariance, (2, 2)),
        ("upper", upper, (2,)),
    ):
        if value.shape[-len(end) :] != end:
            raise BotorchTensorDimensionError(
                f"Expected the shape of `{name}` to end in {end}, got "
                f"{tuple(value.shape)}."
            )
    check_finite(mean=mean, covariance=covariance)
    require(~upper.isnan(), "`upper` to be a number", upper)
    check_bounds(lower, upper[..., 1])
    variances = covariance.diagonal(dim1=-2, dim2=-1)
    require(
        variances >= 0.0, "the diagonal of `covariance` to be at least 0", variances
    )
    # Half of the digits must agree. Covariances are often differences that cancel.
    above, below = covariance[..., 0, 1], covariance[..., 1, 0]
    largest = variances.sqrt().prod(-1)
    tolerance = torch.finfo(covariance.dtype).eps ** 0.5 * largest
    require(
        (above - below).abs() <= tolerance,
        "`covariance` to be symmetric",
        above,
        below,
    )
    require(
        above.abs() <= largest + tolerance,
        "`covariance` to be positive semi-definite, its off-diagonal element at most "
        "the square root of the product of the variances",
        above,
        largest,
    )


class _Normal(NamedTuple):
    """The problem. A negative correlation is avoided by reflecting variable two."""

    mean_1: Tensor
    mean_2: Tensor
    variance_1: Tensor
    variance_2: Tensor
    cross: Tensor  # the covariance, not negative
    lower_2: Tensor
    upper_1: Tensor
    upper_2: Tensor
    sign: Tensor  # minus one where the second variable is reflected, else one


def _split(mean: Tensor, covariance: Tensor, lower: Tensor, upper: Tensor) -> _Normal:
    """Split the arguments into their elements, of ``batch_shape`` each, in float64."""
    elements = widen(covariance).flatten(-2).unbind(-1)
    variance_1, cross, also_cross, variance_2 = elements
    variance_1 = variance_1.clamp_min(0.0) + _LEAST_SQUARABLE_VARIANCE
    variance_2 = variance_2.clamp_min(0.0) + _LEAST_SQUARABLE_VARIANCE
    cross = 0.5 * (cross + also_cross)
    reflected = cross < 0.0
    sign = torch.where(reflected, -1.0, 1.0).to(cross)
    lower_2 = widen(lower).clamp(-FARTHEST_BOUND, FARTHEST_BOUND)
    upper_1, upper_2 = widen(upper).clamp(-FARTHEST_BOUND, FARTHEST_BOUND).unbind(-1)
    with torch.no_grad():
        # Rounding can make the correlation exceed one.
        excess = ((variance_1 * variance_2).sqrt() - cross.abs()).clamp_max_(0.0)
    mean_1, mean_2 = widen(mean).unbind(-1)
    return _Normal(
        *torch.broadcast_tensors(
            mean_1,
            sign * mean_2,
            variance_1,
            variance_2,
            sign * cross + excess,
            torch.where(reflected, -upper_2, lower_2),
            upper_1,
            torch.where(reflected, -lower_2, upper_2),
            sign,
        )
    )


def _standardise(normal: _Normal) -> tuple[tuple[Tensor, ...], Tensor]:
    """Make the arguments of ``BoxMoments``, and the second standard deviation."""
    mean_1, mean_2, variance_1, variance_2, cross, lower_2, upper_1, upper_2, _ = normal
    sigma = variance_2.sqrt()
    width = (upper_2 - lower_2) / sigma
    with torch.no_grad():
        determinant, corners = _exact_differences(normal)
        exact_spread = (determinant / variance_2).sqrt()
        corners = in_sigmas(corners, variance_2 * exact_spread)
    # Not cross squared: its derivative overflows where cross is zero.
    conditional = variance_1 - cross * (cross / variance_2)
    spread = exact_spread + (conditional - conditional.detach()) / (2.0 * exact_spread)
    problem = (
        in_sigmas(lower_2 - mean_2, sigma),
        in_sigmas(upper_2 - mean_2, sigma),
        width.clamp_max(4.0 * FARTHEST_SIGMAS) + LEAST_WIDTH,
        upper_1 - mean_1,
        cross / sigma,
        spread,
        *corners.unbind(),
    )
    return problem, sigma


def _exact_differences(normal: _Normal) -> tuple[Tensor, Tensor]:
    """The determinant and the corners, without cancellation at a correlation of one."""
    # The corners are the upper bound of the first variable, minus its conditional means
    # at the bounds of the second, times the second variance.
    mean_1, mean_2, variance_1, variance_2, cross, lower_2, upper_1, upper_2, _ = normal
    distances, errors = two_difference(
        torch.stack((upper_1, lower_2, upper_2)),
        torch.stack((mean_1, mean_2, mean_2)),
    )
    factors = torch.stack((variance_2, cross, cross))
    products, rests = two_product(factors, distances)
    rests.addcmul_(factors, errors)
    bound, means = products.split((1, 2))
    bound_rest, mean_rests = rests.split((1, 2))
    corners = bound - means + (bound_rest - mean_rests)
    products, rests = two_product(
        torch.stack((variance_1, cross)), torch.stack((variance_2, cross))
    )
    # diff subtracts in the other order, hence the minus sign.
    determinant = -(products.diff(dim=0) + rests.diff(dim=0)).squeeze(0)
    least = _LEAST_DETERMINANT * variance_1 * variance_2
    return torch.maximum(determinant, least), corners
