"""Recommendations: the setting whose worst case is best, as far as a model knows."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

from botorch.exceptions.errors import UnsupportedError
from botorch.exceptions.warnings import BotorchWarning
from botorch.models.model import Model
from torch import Tensor

from botorch_res.checks import check_number, check_seed, check_type, try_out
from botorch_res.domain import RobustDomain
from botorch_res.domain.arguments import Constraints
from botorch_res.models import ExactGPView
from botorch_res.optim.robust_optima.expected import prefer_expectation
from botorch_res.optim.robust_optima.robust_optimum import RobustOptimum, robust_optimum
from botorch_res.optim.worst_cases.solver import WorstCaseSolver
from botorch_res.sampling import BatchFunction, posterior_mean


def recommend_robust_optimum(
    model: Model,
    domain: RobustDomain,
    maximize: bool = True,
    effort: float = 1.0,
    fixed_features: Mapping[int, float] | None = None,
    inequality_constraints: Constraints | None = None,
    num_samples: int = 16,
    seed: int | None = 0,
) -> RobustOptimum:
    r"""Find the setting whose expected worst case is best.

    The expectation is over functions that agree with the data, so that a setting where
    little is known does not look harmless. Where the functions cannot tell it from the
    robust optimum of the posterior mean, that one is recommended.

    Args:
        model: A fitted single-output model. A batch of models is an ensemble.
        domain: Which columns are controllable, and the values they can take.
        maximize: If ``True``, maximise the minimum over ``theta``. If ``False``,
            minimise the maximum over ``theta``.
        effort: Scales the density of the search; see ``robust_optimum``.
        fixed_features: Values of columns to keep, ``{column: value}``.
        inequality_constraints: Linear constraints on controllable columns, a list of
            ``(indices, coefficients, rhs)``; see ``RobustDomain.restricted``.
        num_samples: The number of functions, from all models of an ensemble together.
            If it is 0, the robust optimum of the posterior mean is recommended. This is
            also what happens, with a warning, if the model has no function samples.
        seed: The seed of the functions.

    Returns:
        The ``d_x`` controllable part ``x*``, and its ``d_theta`` worst case ``theta*``
        and its worst-case value by the posterior mean, in the user's units.

    Example:
        >>> x, theta, value = recommend_robust_optimum(model, domain, maximize=False)
    """
    check_type("domain", domain, RobustDomain)
    if num_samples != 0:
        # The error of an average needs two.
        check_number("num_samples", num_samples, 2)
    check_seed(seed)
    domain = domain.restricted(fixed_features, inequality_constraints)
    function = mean_function(model, maximize, domain)
    middle = domain.nearest_evaluation(domain.bounds.mean(dim=0, keepdim=True))
    try_out("model", function, middle)
    solver = WorstCaseSolver(function, domain, effort)
    optimum = robust_optimum(solver)
    if num_samples > 0:
        try:
            view = ExactGPView(model, negate=maximize)
            x = optimum.x.reshape(-1)
            optimum = prefer_expectation(solver, x, view, num_samples, seed)
        except UnsupportedError as error:
            warnings.warn(
                "The recommendation is the robust optimum of the posterior mean, and "
                f"not the setting with the best expected worst case: {error}",
                BotorchWarning,
                stacklevel=2,
            )
    x, theta, value = optimum
    return RobustOptimum(
        x.reshape(-1), theta.reshape(-1), (-value if maximize else value).reshape(())
    )


def mean_function(
    model: Model, negate: bool = False, domain: RobustDomain | None = None
) -> BatchFunction | Callable[[Tensor], Tensor]:
    """Make a function of the posterior mean, for ``robust_optimum`` or ``worst_case``.

    Args:
        model: A single-output model. The mean of an ensemble of exact GPs is the
            average of its members.
        negate: Whether to change the sign.
        domain: The domain in which the function is searched; see ``posterior_mean``.

    Returns:
        One function. If the model is an exact GP, its derivatives have a closed form.
    """
    try:
        view = ExactGPView(model, negate=negate)
    except UnsupportedError as error:
        if not isinstance(model, Model) or model.num_outputs != 1:
            outputs = getattr(model, "num_outputs", "no")
            raise UnsupportedError(
                "Expected `model` to be a MultiTaskGP or a Model of one output, got "
                f"{type(model).__name__} of {outputs} outputs."
            ) from error
        sign = -1.0 if negate else 1.0
        return lambda z: sign * _posterior_mean(model, z)
    members = posterior_mean(view, domain)
    if len(view.batch_shape) == 0:
        return members
    return lambda z: members(z).flatten(end_dim=-2).mean(dim=0)


def _posterior_mean(model: Model, z: Tensor) -> Tensor:
    """Evaluate the mean of any model at ``n x d`` points, each on its own."""
    posterior: Any = model.posterior(z.unsqueeze(-2))
    mean: Tensor = posterior.mean
    return mean.reshape(z.shape[:-1])
