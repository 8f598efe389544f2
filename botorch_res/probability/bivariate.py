r"""Moments of a bivariate normal truncated to a box, in any corner.

References:

.. [Hale2008new]
    N. Hale and L. N. Trefethen. New quadrature formulas from conformal maps. SIAM
    Journal on Numerical Analysis 46(2), 2008.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from botorch_res.probability.box_moments import BoxMoments
from botorch_res.probability.integration_range import Base
from botorch_res.probability.precision import two_difference, two_product, widen
from botorch_res.probability.univariate import (
    FARTHEST_BOUND,
    FARTHEST_SIGMAS,
    LEAST_WIDTH,
    hold_within,
)
from botorch_res.probability.validation import check_box

# Its square must not underflow, unlike that of LEAST_VARIANCE.
_LEAST_VARIANCE = 1e-140
# The determinant's part of the product of the variances is at least this.
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
    one_sided: bool = False,
    validate_args: bool = True,
) -> TruncatedBivariateMoments:
    r"""Moments of ``x ~ N(mean, covariance)`` given ``lower <= x <= upper``.

    In float64 the relative errors of the variances, the error of the correlation, the
    errors of the means in true standard deviations (beyond the rounding of the means
    themselves) and that of the log-probability relative to ``max(1, abs(log_prob))``
    are below 1e-10 (of the first variance below 1e-11), whatever the correlation, the
    width and the place of the box (tested against mpmath, 1 - abs(rho) from 1e-12,
    widths from 1e-8 and boxes to 40 standard deviations, and their combinations).
    Nothing is infinite or NaN: a zero variance, a correlation of exactly one and
    an empty interval give the limits, in which an empty interval has the
    log-probability of one 1e-100 standard deviations wide, and the determinant of the
    covariance is at least 1e-16 of the product of the variances.

    Robust Entropy Search calls this with ``one_sided``, once for each candidate and
    sample. The general case is for anyone who knows limits on both sides for a pair of
    Gaussian values and needs their covariance: BoTorch's ``bvnmom`` returns the means
    only.

    Differentiable once with respect to all four arguments, with finite gradients; those
    of infinite bounds are zero. Computed in float64 on the device of the arguments and
    returned in their dtype; no operation depends on values or waits for the device.

    Args:
        mean: The mean, ``batch_shape x 2``; the batch shapes of all four broadcast.
        covariance: The covariance, ``batch_shape x 2 x 2``, may be singular.
        lower: The lower bounds, ``batch_shape x 2``, may be minus infinity.
        upper: The upper bounds, ``batch_shape x 2``, may be plus infinity, at least
            ``lower``.
        one_sided: Promise that the first variable has no lower bound; ``lower[..., 0]``
            is ignored. Several times faster.
        validate_args: Check the arguments. This waits for the device: switch it off in
            a hot loop.

    Returns:
        Log-probability, mean and covariance.

    Raises:
        BotorchTensorDimensionError: When ``validate_args`` is set and the trailing
            dimensions are not as above.
        InputDataError: When ``validate_args`` is set and an argument is NaN, the mean
            or the covariance is infinite, a lower bound exceeds its upper bound, the
            covariance is not symmetric or not positive semi-definite beyond rounding,
            or ``one_sided`` is set and a first lower bound is not minus infinity.

    Example:
        >>> mean, covariance = torch.zeros(2), torch.tensor([[1.0, 0.8], [0.8, 1.0]])
        >>> lower, upper = torch.tensor([-torch.inf, 0.0]), torch.tensor([1.0, 1.0])
        >>> moments = truncated_bvn_moments(mean, covariance, lower, upper)
        >>> moments.covariance[0, 0]
    """
    if validate_args:
        check_box(mean, covariance, lower, upper, one_sided)
    normal = _split(mean, covariance, lower, upper)
    problem, sigma = _standardise(normal, one_sided)
    outcome = BoxMoments.apply(one_sided, *problem)  # type: ignore[no-untyped-call]
    log_prob, y_mean, y_variance, x_mean, variance_1, xy, *rest = outcome
    base = Base(*rest)
    # Where the base is a bound, it carries that bound's gradient.
    place_2 = normal.mean_2 + sigma * base.z
    place_2 = torch.where(base.on_right, normal.upper_2, place_2)
    place_2 = torch.where(base.on_left, normal.lower_2, place_2)
    regression = normal.cross / normal.variance_2
    place_1 = normal.mean_1 + regression * (place_2 - normal.mean_2)
    place_1 = torch.where(base.high < 0.0, normal.upper_1, place_1)
    place_1 = torch.where(base.low > 0.0, normal.lower_1, place_1)
    mean_1 = place_1 + x_mean
    mean_2 = normal.sign * (place_2 + sigma * y_mean)
    xy = normal.sign * sigma * xy
    variances = variance_1, xy, xy, normal.variance_2 * y_variance
    inside = hold_within(torch.stack((mean_1, mean_2), -1), lower, upper)
    return TruncatedBivariateMoments(
        log_prob=log_prob.to(mean.dtype),
        mean=inside.to(mean.dtype),
        covariance=torch.stack(variances, -1).unflatten(-1, (2, 2)).to(mean.dtype),
    )


class _Normal(NamedTuple):
    """The problem, its second variable reflected so that the correlation is positive.

    Attributes:
        mean_1: The first mean.
        mean_2: The second mean.
        variance_1: The first variance.
        variance_2: The second variance.
        cross: The covariance, not negative.
        lower_1: The first lower bound.
        lower_2: The second lower bound.
        upper_1: The first upper bound.
        upper_2: The second upper bound.
        sign: Minus one where the second variable is reflected, else one.
    """

    mean_1: Tensor
    mean_2: Tensor
    variance_1: Tensor
    variance_2: Tensor
    cross: Tensor
    lower_1: Tensor
    lower_2: Tensor
    upper_1: Tensor
    upper_2: Tensor
    sign: Tensor


def _split(mean: Tensor, covariance: Tensor, lower: Tensor, upper: Tensor) -> _Normal:
    """Split the arguments into their elements, of ``batch_shape`` each, in float64."""
    elements = widen(covariance).flatten(-2).unbind(-1)
    variance_1, cross, also_cross, variance_2 = elements
    variance_1 = variance_1.clamp_min(0.0) + _LEAST_VARIANCE
    variance_2 = variance_2.clamp_min(0.0) + _LEAST_VARIANCE
    cross = 0.5 * (cross + also_cross)
    reflected = cross < 0.0
    sign = torch.where(reflected, -1.0, 1.0).to(cross)
    lower_1, lower_2 = widen(lower).clamp(-FARTHEST_BOUND, FARTHEST_BOUND).unbind(-1)
    upper_1, upper_2 = widen(upper).clamp(-FARTHEST_BOUND, FARTHEST_BOUND).unbind(-1)
    with torch.no_grad():
        # Rounding may carry the correlation past one.
        excess = ((variance_1 * variance_2).sqrt() - cross.abs()).clamp_max_(0.0)
    mean_1, mean_2 = widen(mean).unbind(-1)
    return _Normal(
        *torch.broadcast_tensors(
            mean_1,
            sign * mean_2,
            variance_1,
            variance_2,
            sign * cross + excess,
            lower_1,
            torch.where(reflected, -upper_2, lower_2),
            upper_1,
            torch.where(reflected, -lower_2, upper_2),
            sign,
        )
    )


def _standardise(normal: _Normal, one_sided: bool) -> tuple[tuple[Tensor, ...], Tensor]:
    """The arguments of ``BoxMoments``, and the second standard deviation."""
    mean_1, mean_2, variance_1, variance_2, cross, *_ = normal
    sigma = variance_2.sqrt()
    width = (normal.upper_2 - normal.lower_2) / sigma
    with torch.no_grad():
        determinant, corners = _exact_differences(normal, one_sided)
        exact_spread = (determinant / variance_2).sqrt()
        corners = _within_reach(corners / (variance_2 * exact_spread))
        if one_sided:
            # What counts as no bound at all.
            corners = torch.cat((corners, torch.full_like(corners, -FARTHEST_SIGMAS)))
            below = torch.full_like(sigma, -torch.inf)
            gap = torch.full_like(sigma, torch.inf)
    if not one_sided:
        below = normal.lower_1 - mean_1
        gap = normal.upper_1 - normal.lower_1
    # Not the square of cross, whose derivative overflows where it is zero.
    conditional = variance_1 - cross * (cross / variance_2)
    spread = exact_spread + (conditional - conditional.detach()) / (2.0 * exact_spread)
    high_at_left, high_at_right, low_at_left, low_at_right = corners.unbind()
    problem = (
        _within_reach((normal.lower_2 - mean_2) / sigma),
        _within_reach((normal.upper_2 - mean_2) / sigma),
        width.clamp_max(4.0 * FARTHEST_SIGMAS) + LEAST_WIDTH,
        below,
        normal.upper_1 - mean_1,
        gap,
        cross / sigma,
        spread,
        *(low_at_left, low_at_right, high_at_left, high_at_right),
    )
    return problem, sigma


def _within_reach(sigmas: Tensor) -> Tensor:
    """Bounds in standard deviations, held where their squares stay finite."""
    return sigmas.clamp(-FARTHEST_SIGMAS, FARTHEST_SIGMAS)


def _exact_differences(normal: _Normal, one_sided: bool) -> tuple[Tensor, Tensor]:
    """The determinant and the corners, which cancel near a correlation of one."""
    # The corners are, times the second variance, the bounds of the first variable less
    # its conditional means at the bounds of the second: for (upper, lower),
    # (upper, upper) and, unless one_sided, (lower, lower) and (lower, upper).
    mean_1, mean_2, variance_1, variance_2, cross, *_ = normal
    firsts = (normal.upper_1,) if one_sided else (normal.upper_1, normal.lower_1)
    count = len(firsts)
    distances, errors = two_difference(
        torch.stack((*firsts, normal.lower_2, normal.upper_2)),
        torch.stack((*(mean_1,) * count, mean_2, mean_2)),
    )
    factors = torch.stack((*(variance_2,) * count, cross, cross))
    products, rests = two_product(factors, distances)
    rests.addcmul_(factors, errors)
    bounds, regressions = products.split((count, 2))
    rest, regression_rest = rests.split((count, 2))
    corners = bounds.unsqueeze(1) - regressions
    corners += rest.unsqueeze(1) - regression_rest
    products, rests = two_product(
        torch.stack((variance_1, cross)), torch.stack((variance_2, cross))
    )
    # Minus the second product, and the rest of it.
    determinant = -(products.diff(dim=0) + rests.diff(dim=0)).squeeze(0)
    least = _LEAST_DETERMINANT * variance_1 * variance_2
    return torch.maximum(determinant, least), corners.flatten(0, 1)
