"""Gaussian processes: fitted models, diagnostics, and the exact-GP view of a model."""

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
from botorch_res.models.staged_gp import (
    GPStage,
    JointPosterior,
    PairPosterior,
    StagedGP,
)

__all__ = [
    "BayesianGP",
    "DefaultGP",
    "EnsembleGP",
    "ExactGPView",
    "FixedGP",
    "GPStage",
    "JointPosterior",
    "LeaveOneOut",
    "MaximumLikelihoodGP",
    "ModelFactory",
    "PairPosterior",
    "StagedGP",
    "leave_one_out",
]
