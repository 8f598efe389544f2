r"""Replicates of an experiment as one batch.

To compare strategies one runs each on the same problem from many seeds. ``S`` such runs
are one tensor program here: a batched model, fitted in one go; a batched acquisition
function, in which every member has its own function samples; a batched search for the
candidates; a batched min-max recommendation. Member ``s`` takes the step that the
strategy would take on the data of member ``s`` alone with seed ``s``. The steps differ
by rounding, and by the grids of the min-max searches: all members share the finest.

All runs have the same domain and the same number of observations. The model factory
must accept batches of data, as all but ``BayesianGP`` do. No points are pending.

Example:
    >>> strategy = make_strategy("res", domain, maximize=False, num_samples=1)
    >>> X = torch.stack([domain.sample(3, seed=s) for s in range(32)])
    >>> Y = problem(X).unsqueeze(-1)
    >>> points = propose_replicates(strategy, X, Y, seeds=range(32))
    >>> best = recommend_replicates(strategy, X, Y)
"""

from __future__ import annotations

from collections.abc import Sequence

from botorch.exceptions.errors import BotorchTensorDimensionError
from torch import Tensor

from botorch_res.models import BayesianGP, ExactGPView
from botorch_res.optim import RobustOptimum, WorstCaseSolver, robust_optimum
from botorch_res.optim.robust_optima.expected import prefer_expectation
from botorch_res.sampling import posterior_mean
from botorch_res.strategies.base import Strategy


def supports_replicates(strategy: Strategy) -> bool:
    """Whether the runs of a strategy can be one batch.

    Args:
        strategy: The strategy.

    Returns:
        Whether its class defines ``propose_batch`` and its models can be batched.
    """
    batched = type(strategy).propose_batch is not Strategy.propose_batch
    return batched and not isinstance(strategy.model_factory, BayesianGP)


def propose_replicates(
    strategy: Strategy, X: Tensor, Y: Tensor, seeds: Sequence[int]
) -> Tensor:
    """Propose the next point of every run.

    Args:
        strategy: The strategy, for which ``supports_replicates`` holds.
        X: An ``S x t x d`` tensor of evaluated points.
        Y: An ``S x t x 1`` tensor of their observed values.
        seeds: ``S`` seeds of whatever the strategy draws.

    Returns:
        An ``S x d`` tensor of points of the domain.
    """
    _check(X, Y)
    if len(seeds) != len(X):
        raise BotorchTensorDimensionError(
            f"Expected {len(X)} `seeds`, one for each run, got {len(seeds)}."
        )
    return strategy.propose_batch(X, Y, list(seeds))


def recommend_replicates(
    strategy: Strategy, X: Tensor, Y: Tensor, num_samples: int = 16
) -> RobustOptimum:
    """Recommend for every run, as ``recommend_robust_optimum`` does for one.

    Args:
        strategy: Any strategy whose model factory accepts batches of data.
        X: An ``S x t x d`` tensor of evaluated points.
        Y: An ``S x t x 1`` tensor of their observed values.
        num_samples: The number of functions for each run.

    Returns:
        The ``S x d_x`` controllable parts, their ``S x d_theta`` worst cases and the
        ``S`` predicted values.
    """
    _check(X, Y)
    view = ExactGPView(strategy.fit(X, Y), negate=strategy.maximize)
    solver = WorstCaseSolver(posterior_mean(view, strategy.domain), strategy.domain)
    best = RobustOptimum(*(part.squeeze(0) for part in robust_optimum(solver)))
    if num_samples > 0:
        seeds = [strategy.seed] * len(X)
        best = prefer_expectation(solver, best.x, view, num_samples, seeds)
    return best._replace(value=-best.value if strategy.maximize else best.value)


def _check(X: Tensor, Y: Tensor) -> None:
    """Raise unless the data are those of several runs."""
    if X.ndim != 3 or Y.shape != (*X.shape[:-1], 1):
        raise BotorchTensorDimensionError(
            "Expected `X` of shape S x t x d and `Y` of shape S x t x 1, got "
            f"{tuple(X.shape)} and {tuple(Y.shape)}."
        )
