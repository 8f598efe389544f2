"""Worst cases, robust optima, and the optimisation of acquisition functions."""

from botorch_res.optim.acquisition.optimize_acqf import (
    optimize_replicates,
    optimize_robust_acqf,
)
from botorch_res.optim.acquisition.starts import gen_robust_initial_conditions
from botorch_res.optim.robust_optima.probable import (
    ProbableOptimum,
    recommend_under_constraints,
)
from botorch_res.optim.robust_optima.recommend import (
    mean_function,
    recommend_robust_optimum,
)
from botorch_res.optim.robust_optima.regret import Regret, predict_regret
from botorch_res.optim.robust_optima.robust_optimum import (
    RobustOptimum,
    constrained_robust_optimum,
    robust_optimum,
)
from botorch_res.optim.robust_optima.robust_problem import ConstrainedOptimum
from botorch_res.optim.worst_cases.solver import WorstCaseSolver, worst_case
from botorch_res.optim.worst_cases.theta_search import WorstCase

__all__ = [
    "ConstrainedOptimum",
    "ProbableOptimum",
    "Regret",
    "RobustOptimum",
    "WorstCase",
    "WorstCaseSolver",
    "constrained_robust_optimum",
    "gen_robust_initial_conditions",
    "mean_function",
    "optimize_replicates",
    "optimize_robust_acqf",
    "predict_regret",
    "recommend_robust_optimum",
    "recommend_under_constraints",
    "robust_optimum",
    "worst_case",
]
