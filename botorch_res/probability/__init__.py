"""Moments of truncated normal distributions, one and two variables."""

from botorch_res.probability.bivariate import (
    TruncatedBivariateMoments,
    truncated_bvn_moments,
)
from botorch_res.probability.univariate import (
    TruncatedMoments,
    truncated_normal_moments,
)

__all__ = [
    "TruncatedBivariateMoments",
    "TruncatedMoments",
    "truncated_bvn_moments",
    "truncated_normal_moments",
]
