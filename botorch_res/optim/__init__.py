"""Worst cases, robust optima, and the optimisation of acquisition functions."""

from botorch_res.optim.optimize_acqf import (
    gen_robust_initial_conditions,
    optimize_robust_acqf,
)
from botorch_res.optim.optimize_replicates import optimize_replicates
from botorch_res.optim.recommend import mean_function, recommend_robust_optimum
from botorch_res.optim.robust_optimum import RobustOptimum, robust_optimum
from botorch_res.optim.worst_case import WorstCase, WorstCaseSolver, worst_case

__all__ = [
    "RobustOptimum",
    "WorstCase",
    "WorstCaseSolver",
    "gen_robust_initial_conditions",
    "mean_function",
    "optimize_replicates",
    "optimize_robust_acqf",
    "recommend_robust_optimum",
    "robust_optimum",
    "worst_case",
]
