"""Exact-GP views of BoTorch models: factors, joint posteriors, extra sites."""

from botorch_res.models.conditional_gp import (
    ConditionalGP,
    ConditionedGP,
    JointPosterior,
    PairPosterior,
)
from botorch_res.models.exact_gp import ExactGPView

__all__ = [
    "ConditionalGP",
    "ConditionedGP",
    "ExactGPView",
    "JointPosterior",
    "PairPosterior",
]
