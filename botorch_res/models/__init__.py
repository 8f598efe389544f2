"""Exact-GP views of BoTorch models: factors, joint posteriors, extra sites."""

from botorch_res.models.exact_gp import ExactGPView, JointPosterior

__all__ = ["ExactGPView", "JointPosterior"]
