"""Moments of truncated normal distributions in one and two variables."""

from botorch_res.probability.bivariate import (
    TruncatedBivariateMoments,
    truncated_bvn_moments,
)
from botorch_res.probability.univariate import (
    TruncatedMoments,
    remaining_variance,
    truncated_normal_moments,
)

__all__ = [
    "TruncatedBivariateMoments",
    "TruncatedMoments",
    "remaining_variance",
    "truncated_bvn_moments",
    "truncated_normal_moments",
]
