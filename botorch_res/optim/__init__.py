"""Worst cases, robust optima, and the optimisation of acquisition functions."""

from botorch_res.optim.robust_optimum import RobustOptimum, robust_optimum
from botorch_res.optim.worst_case import WorstCase, WorstCaseSolver, worst_case

__all__ = [
    "RobustOptimum",
    "WorstCase",
    "WorstCaseSolver",
    "robust_optimum",
    "worst_case",
]
