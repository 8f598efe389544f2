"""Acquisition functions for robust optimisation."""

from botorch_res.acquisition.robust_entropy_search import qRobustEntropySearch

__all__ = ["qRobustEntropySearch"]
