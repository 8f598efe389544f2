"""Adversarially robust Bayesian optimisation for BoTorch."""

from botorch_res.domain import RobustDomain

__version__ = "0.1.0.dev0"

__all__ = ["RobustDomain"]
