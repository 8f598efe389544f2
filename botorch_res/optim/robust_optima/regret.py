"""The regret of a setting: how much better the best worst case may be."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from botorch.exceptions.errors import InputDataError
from botorch.models.model import Model
from torch import Tensor

from botorch_res.checks import (
    check_number,
    check_probability,
    check_seed,
    check_type,
)
from botorch_res.domain import RobustDomain
from botorch_res.models import ExactGPView
from botorch_res.optim.robust_optima.robust_optimum import robust_optimum
from botorch_res.optim.worst_cases.solver import WorstCaseSolver
from botorch_res.sampling import draw_fourier_samples


@dataclass(frozen=True, eq=False)
class Regret:
    """What the model knows of the regret of a setting.

    Attributes:
        draws: ``n`` equally likely values of the regret, none of them negative.
    """

    draws: Tensor

    @property
    def mean(self) -> float:
        """The expected regret."""
        return float(self.draws.mean())

    def quantile(self, level: float) -> float:
        """The value that the regret does not exceed with a probability.

        Args:
            level: The probability.

        Returns:
            The value, one of the draws.
        """
        check_probability("level", level)
        return float(self.draws.quantile(level, interpolation="higher"))

    def probability(self, limit: float) -> float:
        """The probability that the regret is at most a limit.

        Args:
            limit: The limit.

        Returns:
            The share of the draws.
        """
        check_number("limit", limit, 0.0)
        return float((self.draws <= limit).double().mean())

    def scaled(self, factor: float) -> Regret:
        """The regret in another unit.

        Args:
            factor: The factor.

        Returns:
            The regret times the factor.
        """
        return Regret(self.draws * factor)

    def __str__(self) -> str:
        return (
            f"{self.mean:.3g} on average, at most {self.quantile(0.95):.3g} with 95 %"
        )


def predict_regret(
    model: Model,
    domain: RobustDomain,
    x: Tensor,
    maximize: bool = True,
    num_samples: int = 64,
    seed: int | None = 0,
) -> Regret:
    r"""Predict the regret of a setting, from functions that agree with the data.

    In a function ``f_c`` the regret is the difference between the worst case of ``x``
    and that of the function's own robust optimum,

    .. math:: r_c = \max_\theta f_c(x, \theta) - \min_{x'} \max_\theta f_c(x', \theta).

    Args:
        model: A fitted exact single-output model. A batch of models is an ensemble.
        domain: Which columns are controllable, and the values they can take.
        x: The ``d_x`` setting.
        maximize: If ``True``, the worst case is the smallest value over ``theta``,
            otherwise the largest.
        num_samples: The number of functions, from all models of an ensemble together.
        seed: The seed of the functions.

    Returns:
        The regret, in the user's units.

    Example:
        >>> x, theta, value = recommend_robust_optimum(model, domain, maximize=False)
        >>> regret = predict_regret(model, domain, x, maximize=False)
        >>> regret.mean, regret.quantile(0.95), regret.probability(0.01)
    """
    check_type("domain", domain, RobustDomain)
    check_type("x", x, Tensor)
    check_number("num_samples", num_samples, 1)
    check_seed(seed)
    if x.shape != (domain.x.dim,) or not bool(domain.x.contains(x)):
        raise InputDataError(
            f"Expected `x` to be a setting of the domain of shape ({domain.x.dim},), "
            f"got {x.tolist()}."
        )
    view = ExactGPView(model, negate=maximize)
    count = math.ceil(num_samples / view.batch_shape.numel())
    samples = draw_fourier_samples(view, count, seed=seed, domain=domain)
    solver = WorstCaseSolver(samples, domain)
    with torch.no_grad():
        worst = solver(x.unsqueeze(-2)).value.squeeze(-1)
        # The search may miss an optimum that is better than x, and then finds worse.
        best = robust_optimum(solver).value
        return Regret((worst - best).clamp_min(0.0).flatten())
