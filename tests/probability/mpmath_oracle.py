"""Truncated normal moments in multi-precision arithmetic, for the tests.

Written independently of the package: no Mills ratio, no standardised frame, no
transplanted rule. One variable is integrated numerically, the other by closed formulas
whose cancellation the digits outlast.
"""

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import mpmath as mp
from mpmath import mpf

DIGITS = 90
ORDER = 30
RISE = 70


class Moments(NamedTuple):
    log_prob: mpf
    mean: tuple[mpf, mpf]
    covariance: tuple[mpf, mpf, mpf]  # first variance, covariance, second variance


def _density(x: mpf) -> mpf:
    return mp.exp(-x * x / 2) / mp.sqrt(2 * mp.pi) if mp.isfinite(x) else mpf(0)


def _above(x: mpf) -> mpf:
    if x == mp.inf:
        return mpf(0)
    return mpf(1) if x == -mp.inf else mp.erfc(x / mp.sqrt(2)) / 2


def standard_interval(a: mpf, b: mpf) -> tuple[mpf, mpf, mpf]:
    """Probability, mean and variance of a standard normal on ``[a, b]``."""
    if abs(a) > abs(b):
        prob, mean, variance = standard_interval(-b, -a)
        return prob, -mean, variance
    prob = _above(a) - _above(b)
    at_a, at_b = _density(a), _density(b)
    mean = (at_a - at_b) / prob
    weighted = (a * at_a if at_a else mpf(0)) - (b * at_b if at_b else mpf(0))
    return prob, mean, 1 + weighted / prob - mean**2


def truncated_normal(
    mean: float, variance: float, lower: float, upper: float
) -> tuple[mpf, mpf, mpf]:
    """Log-probability, mean and variance of one truncated normal variable."""
    with mp.workdps(DIGITS):
        sigma = mp.sqrt(mpf(variance))
        a, b = ((mpf(bound) - mpf(mean)) / sigma for bound in (lower, upper))
        prob, centre, spread = standard_interval(a, b)
        return mp.log(prob), mpf(mean) + sigma * centre, sigma**2 * spread


@cache
def _gauss_legendre(order: int) -> list[tuple[mpf, mpf]]:
    """Nodes and weights on [-1, 1], by Newton's method."""

    def legendre(x: mpf) -> tuple[mpf, mpf]:
        before, value = mpf(1), x
        for k in range(2, order + 1):
            before, value = value, ((2 * k - 1) * x * value - (k - 1) * before) / k
        return value, order * (x * value - before) / (x * x - 1)

    rule = []
    for k in range(order):
        x = mp.cos(mp.pi * (k + mpf(3) / 4) / (order + mpf(1) / 2))
        for _ in range(8):
            value, slope = legendre(x)
            x -= value / slope
        rule.append((x, 2 / ((1 - x * x) * legendre(x)[1] ** 2)))
    return rule


def truncated_bvn(
    mean: Sequence[float],
    covariance: Sequence[Sequence[float]],
    lower: Sequence[float],
    upper: Sequence[float],
    order: int = ORDER,
) -> Moments:
    """Moments of a truncated bivariate normal variable; arguments count as exact.

    Args:
        mean: The two means.
        covariance: The covariance matrix, not singular.
        lower: The two lower bounds.
        upper: The two upper bounds.
        order: The number of Gauss-Legendre nodes on each piece.
    """
    with mp.workdps(DIGITS):
        mean_1, mean_2 = map(mpf, mean)
        var_1, cross, var_2 = (
            mpf(covariance[i][j]) for i, j in ((0, 0), (0, 1), (1, 1))
        )
        sigma_2 = mp.sqrt(var_2)
        spread = mp.sqrt(var_1 - cross**2 / var_2)
        slope = cross / (sigma_2 * spread)
        left, right = ((mpf(b) - mean_2) / sigma_2 for b in (lower[1], upper[1]))
        low, high = ((mpf(b) - mean_1) / spread for b in (lower[0], upper[0]))

        def height(z: mpf) -> mpf:
            pull = max(low - slope * z, min(high - slope * z, mpf(0)))
            return (z * z + pull * pull) / 2

        first, peak, last = _range(height, left, right)
        breaks = {first, peak, last}
        if slope:
            for bound in (low, high):
                if mp.isfinite(bound):
                    breaks |= {(bound + mpf(k)) / slope for k in range(-16, 17, 4)}
        for end in (first, last):
            breaks |= {peak + (end - peak) / 4**k for k in range(1, 3)}
        points = sorted(z for z in breaks if first <= z <= last)
        nodes = []
        for start, stop in pairwise(points):
            half, middle = (stop - start) / 2, (stop + start) / 2
            for x, weight in _gauss_legendre(order):
                z = middle + half * x
                prob, centre, variance = standard_interval(
                    low - slope * z, high - slope * z
                )
                mass = weight * half * _density(z) * prob
                nodes.append((mass, z, slope * z + centre, variance))
        total = mp.fsum(m for m, *_ in nodes)
        z_mean = mp.fsum(m * z for m, z, _, _ in nodes) / total
        t_mean = mp.fsum(m * t for m, _, t, _ in nodes) / total
        within = mp.fsum(m * v for m, *_, v in nodes)
        t_var = (
            within + mp.fsum(m * (t - t_mean) ** 2 for m, _, t, _ in nodes)
        ) / total
        z_var = mp.fsum(m * (z - z_mean) ** 2 for m, z, _, _ in nodes) / total
        tz = mp.fsum(m * (z - z_mean) * (t - t_mean) for m, z, t, _ in nodes) / total
        return Moments(
            mp.log(total),
            (mean_1 + spread * t_mean, mean_2 + sigma_2 * z_mean),
            (spread**2 * t_var, spread * sigma_2 * tz, var_2 * z_var),
        )


def _range(height, left: mpf, right: mpf) -> tuple[mpf, mpf, mpf]:
    """The minimum of a convex function, and where it has risen by ``RISE``."""
    a = left if mp.isfinite(left) else min(right, mpf(0)) - 10**9
    b = right if mp.isfinite(right) else max(left, mpf(0)) + 10**9
    low, high = a, b
    for _ in range(220):
        third = (high - low) / 3
        if height(low + third) <= height(high - third):
            high -= third
        else:
            low += third
    peak = min((a, b, (low + high) / 2), key=height)
    top = height(peak) + RISE
    ends = []
    for end in (a, b):
        inside, outside = peak, end
        if height(end) > top:
            for _ in range(100):
                middle = (inside + outside) / 2
                if height(middle) > top:
                    outside = middle
                else:
                    inside = middle
        ends.append(outside)
    return ends[0], peak, ends[1]
