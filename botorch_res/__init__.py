"""Adversarially robust Bayesian optimisation for BoTorch."""

from botorch_res.domain import RobustDomain
from botorch_res.optimizer import RobustOptimizer
from botorch_res.parameters import Choice, Integer, Range

__version__ = "0.1.0.dev0"

__all__ = ["Choice", "Integer", "Range", "RobustDomain", "RobustOptimizer"]
