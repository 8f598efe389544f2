"""Gaussian processes: fitted models, diagnostics, and the exact-GP view of a model."""

from botorch_res.models.conditional_gp import (
    ConditionalGP,
    ConditionedGP,
    JointPosterior,
    PairPosterior,
)
from botorch_res.models.diagnostics import LeaveOneOut, leave_one_out
from botorch_res.models.exact_gp import ExactGPView
from botorch_res.models.fitting import (
    BayesianGP,
    DefaultGP,
    FixedGP,
    MaximumLikelihoodGP,
    ModelFactory,
)
from botorch_res.models.scaled_gp import EnsembleGP

__all__ = [
    "BayesianGP",
    "ConditionalGP",
    "ConditionedGP",
    "DefaultGP",
    "EnsembleGP",
    "ExactGPView",
    "FixedGP",
    "JointPosterior",
    "LeaveOneOut",
    "MaximumLikelihoodGP",
    "ModelFactory",
    "PairPosterior",
    "leave_one_out",
]
