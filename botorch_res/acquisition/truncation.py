r"""The last step of Robust Entropy Search: truncate the values at a candidate.

The pair ``[f(x, theta), f(x, h_c(x))]`` has a normal distribution. What the ``c``-th
sample says about the pair truncates it. The result is the variance of the first value.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from botorch_res.probability import (
    remaining_variance,
    truncated_bvn_moments,
)

# The smallest interval of the truncation, in standard deviations. A safe choice: wide
# enough to keep digits in the gradient, and too small to change variances noticeably.
SMALLEST_INTERVAL = 1e-4


def tie_weights(value: Tensor, depth: Tensor, width: Tensor) -> Tensor:
    """Weights of the two worst cases that change continuously where these swap places.

    Args:
        value: ``... x 3 x n`` values of the three worst local worst cases, the worst
            first.
        depth: ``... x 3 x n`` depths of the valleys towards a worse one. A local worst
            case of depth zero is about to vanish or has just appeared. It does not
            count.
        width: ``... x n`` gaps from which on only the worst one counts.

    Returns:
        ``... x 2 x n`` weights: one and zero if there is a gap, equal if there is none,
        and zero for a second one that is about to swap places with the third.
    """
    tiny = torch.finfo(value.dtype).tiny ** 0.5
    unit = width.unsqueeze(-2).clamp_min(tiny)
    gap = ((value[..., :1, :] - value[..., 1:, :]) / unit).clamp_max(1.0)
    second, third = gap.unbind(dim=-2)
    _, depth, third_depth = (depth / unit).clamp_min(tiny).unbind(dim=-2)
    behind = ((third - second) / third_depth).clamp_max(1.0)
    third = third + behind * (1.0 - third)
    second = second / depth.clamp_max(1.0)
    # Where all three tie, only the first one counts.
    ratio = (third - second).clamp_min(0.0) / (third + tiny)
    # The square lets the second one come in without a kink.
    weights = torch.stack([torch.ones_like(ratio), ratio.square()], dim=-2)
    return weights / weights.sum(dim=-2, keepdim=True)


def truncate_to_optimum(
    mean: Tensor,
    covariance: Tensor,
    optimal_value: Tensor,
    worst_value: Tensor,
    own_bound: Callable[[], Tensor],
) -> Tensor:
    """The variance of ``f(x, theta)`` given ``f*_c <= f(x, h_c(x))``.

    Args:
        mean: ``... x n x 2`` means of the pairs.
        covariance: ``... x n x 2 x 2`` their covariances.
        optimal_value: ``... x 1`` optimal values ``f*_c``.
        worst_value: ``... x n`` worst-case values ``g_c(x)``.
        own_bound: Gives ``... x n`` upper bounds of ``f(x, theta)``.

    Returns:
        ``... x n`` variances.
    """
    # A worst-case value below the sampled optimum is a better optimum.
    lower = torch.minimum(optimal_value, worst_value)
    own, partner = covariance[..., 0, 0], covariance[..., 1, 1].clamp_min(0.0)
    left = remaining_variance(mean[..., 1], partner, lower)
    own = own.clamp_min(0.0)
    tiny = torch.finfo(own.dtype).tiny ** 0.5
    explained = covariance[..., 0, 1].square() / (own * partner + tiny)
    shrinkage: Tensor = explained.clamp_max(1.0) * (1.0 - left)
    return own * (1.0 - shrinkage)


def truncate_to_characteristics(
    mean: Tensor,
    covariance: Tensor,
    optimal_value: Tensor,
    worst_value: Tensor,
    own_bound: Callable[[], Tensor],
) -> Tensor:
    """The variance of ``f(x, theta)``, given all characteristics of the sample.

    These are ``f(x, theta) <= g_c(x)`` and ``f*_c <= f(x, h_c(x)) <= g_c(x)``.

    Args:
        mean: ``... x n x 2`` means of the pairs.
        covariance: ``... x n x 2 x 2`` their covariances.
        optimal_value: ``... x 1`` optimal values ``f*_c``.
        worst_value: ``... x n`` worst-case values ``g_c(x)``.
        own_bound: Gives ``... x n`` upper bounds of ``f(x, theta)``.

    Returns:
        ``... x n`` variances.
    """
    # A worst-case value below the sampled optimum is a better optimum. A small width
    # hardly changes the variance, and keeps the gradient from cancelling.
    tiny = torch.finfo(mean.dtype).tiny
    width = SMALLEST_INTERVAL * (covariance[..., 1, 1].clamp_min(0.0) + tiny).sqrt()
    lower = torch.minimum(optimal_value, worst_value - width)
    moments = truncated_bvn_moments(
        mean,
        covariance,
        lower=lower,
        upper=torch.stack([own_bound(), worst_value], dim=-1),
        validate_args=False,
    )
    variance: Tensor = moments.covariance[..., 0, 0]
    return variance
