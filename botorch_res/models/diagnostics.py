r"""Leave-one-out diagnostics: does the model predict the observations it has not seen?

References:
.. [Rasmussen2006gaussian]
    C. E. Rasmussen and C. K. I. Williams. Gaussian Processes for Machine Learning.
    MIT Press, 2006. Equations 5.10 to 5.12.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from botorch.cross_validation import loo_cv
from botorch.models.model import Model
from torch import Tensor

from botorch_res.models.moments import posterior_moments

# Half the width of the central 95 % interval of a standard normal.
_INTERVAL = 1.959963984540054


@dataclass(frozen=True)
class LeaveOneOut:
    """Each observation beside its prediction from all the others, in user's units.

    Attributes:
        observed: The ``n`` observations.
        mean: The ``n`` predictions.
        variance: The ``n`` predictive variances, observation noise included.
    """

    observed: Tensor
    mean: Tensor
    variance: Tensor

    @property
    def residual(self) -> Tensor:
        """The ``n`` standardised residuals: about standard normal for a good model."""
        return (self.observed - self.mean) / self.variance.sqrt()

    @property
    def coverage(self) -> float:
        """The fraction of observations inside their 95 % interval."""
        return float((self.residual.abs() <= _INTERVAL).double().mean())

    @property
    def log_score(self) -> float:
        """The mean log predictive density, to compare models by: more is better."""
        density = -(self.residual.square() + (2 * math.pi * self.variance).log()) / 2
        return float(density.mean())

    @property
    def explained(self) -> float:
        """The fraction of the variance explained (Q squared): 1 at best.

        It is not a number if all observations are equal: there is nothing to explain.
        """
        error = (self.observed - self.mean).square().sum()
        return float(1 - error / (self.observed - self.observed.mean()).square().sum())


def leave_one_out(model: Model) -> LeaveOneOut:
    """Predict every observation from all the others, hyperparameters held fixed.

    Args:
        model: A fitted single-output exact GP, single or an ensemble (the moments are
            then those of the mixture).

    Returns:
        The predictions.

    Example:
        >>> found = leave_one_out(model)
        >>> found.explained, found.coverage
    """
    with torch.no_grad():
        result = loo_cv(model)  # type: ignore[arg-type]
    mean, variance = posterior_moments(result.posterior)
    n = mean.numel()
    return LeaveOneOut(
        # An ensemble repeats the observations for each of its members.
        observed=result.observed_Y.reshape(n, -1)[:, 0],
        mean=mean.reshape(n),
        variance=variance.reshape(n),
    )
