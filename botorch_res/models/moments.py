"""The moments of a posterior, of a single model or of an ensemble."""

from __future__ import annotations

from typing import Any

from botorch.posteriors.fully_bayesian import GaussianMixturePosterior
from torch import Tensor


def posterior_moments(posterior: Any) -> tuple[Tensor, Tensor]:
    """Mean and variance at each point; those of the mixture for an ensemble.

    Args:
        posterior: The posterior of a BoTorch model.

    Returns:
        The means and the variances, each ``... x q x m``.
    """
    if isinstance(posterior, GaussianMixturePosterior):
        return posterior.mixture_mean, posterior.mixture_variance
    return posterior.mean, posterior.variance
