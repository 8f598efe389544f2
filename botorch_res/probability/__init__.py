"""Moments of truncated normal distributions, one and two variables."""

from botorch_res.probability.univariate import (
    TruncatedMoments,
    truncated_normal_moments,
)

__all__ = ["TruncatedMoments", "truncated_normal_moments"]
