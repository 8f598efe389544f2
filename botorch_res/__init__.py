"""Adversarially robust Bayesian optimisation for BoTorch."""

from botorch_res.acquisition import StableOpt, qRobustEntropySearch
from botorch_res.domain import RobustDomain
from botorch_res.optim import optimize_robust_acqf, recommend_robust_optimum
from botorch_res.study import RobustOptimizer

__version__ = "0.1.0.dev0"

__all__ = [
    "RobustDomain",
    "RobustOptimizer",
    "StableOpt",
    "optimize_robust_acqf",
    "qRobustEntropySearch",
    "recommend_robust_optimum",
]
