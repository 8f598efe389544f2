"""Acquisition functions for robust optimisation."""

# The import registers it with BoTorch.
from botorch_res.acquisition.input_constructors import construct_inputs_qRES
from botorch_res.acquisition.robust_entropy_search import qRobustEntropySearch
from botorch_res.acquisition.stable_opt import StableOpt
from botorch_res.acquisition.targets import Intervals, LocalWorstCases, Target

__all__ = [
    "Intervals",
    "LocalWorstCases",
    "StableOpt",
    "Target",
    "construct_inputs_qRES",
    "qRobustEntropySearch",
]
