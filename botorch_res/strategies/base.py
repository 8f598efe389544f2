r"""The interface of a strategy, and the names under which strategies are known.

A strategy is built once for a domain and a direction, and is then called with all data
each time. It keeps nothing between calls that could change an answer: the same data and
the same seed give the same points, today or after a restart. A new strategy is a
subclass with a ``propose`` of its own:

    >>> @register_strategy("corner")
    ... class CornerStrategy(Strategy):
    ...     def propose(self, X, Y, Yvar=None, X_pending=None, n=1, seed=0):
    ...         return self.domain.bounds[:1].expand(n, -1)

References:
.. [Ginsbourger2010kriging]
    D. Ginsbourger, R. Le Riche and L. Carraro. Kriging is well-suited to parallelize
    optimization. Computational Intelligence in Expensive Optimization Problems, 2010.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from inspect import signature
from typing import Any, TypeVar

import torch
from botorch.exceptions.errors import (
    BotorchTensorDimensionError,
    InputDataError,
    UnsupportedError,
)
from botorch.models.model import Model
from botorch.models.model_list_gp_regression import ModelListGP
from torch import Tensor

from botorch_res.checks import (
    check_finite,
    check_like,
    check_number,
    check_numbers,
    check_points,
    check_type,
)
from botorch_res.domain import RobustDomain
from botorch_res.models.fitting import DefaultGP, ModelFactory, same_data
from botorch_res.optim import mean_function
from botorch_res.sampling.outcome_constraints import (
    OutcomeConstraints,
    check_constraints,
)
from botorch_res.strategies.recommendation import (
    Recommendation,
    recommend,
    recommend_constrained,
)

_STRATEGIES: dict[str, type[Strategy]] = {}


@dataclass(eq=False)
class Strategy(ABC):
    """Proposes points to evaluate, and recommends a robust optimum.

    Attributes:
        domain: The domain.
        maximize: If ``True``, look for ``max over x of min over theta``, otherwise for
            ``min over x of max over theta``.
        model_factory: Turns data into a model; ``DefaultGP()`` if it is not given.
        seed: The seed of whatever is drawn in fitting and recommending.
        constraints: The lower and the upper bound of each constrained output, one of
            them possibly ``None``. The objective is output 0, and the others are the
            further columns of the observed values. The constraints must hold for all
            theta.
    """

    domain: RobustDomain
    _: KW_ONLY
    maximize: bool
    model_factory: ModelFactory = None  # type: ignore[assignment]
    seed: int = 0
    constraints: OutcomeConstraints | None = None
    _last_fit: tuple[list[Tensor], Model] | None = field(
        default=None, init=False, repr=False
    )

    def __post_init__(self) -> None:
        check_type("domain", self.domain, RobustDomain)
        check_numbers(self)
        given: ModelFactory | None = self.model_factory
        self.model_factory = DefaultGP() if given is None else given
        if self.constraints is not None:
            check_constraints(self.constraints)

    @abstractmethod
    def propose(
        self,
        X: Tensor,
        Y: Tensor,
        Yvar: Tensor | None = None,
        X_pending: Tensor | None = None,
        n: int = 1,
        seed: int = 0,
    ) -> Tensor:
        """Propose points to evaluate next.

        Args:
            X: A ``t x d`` tensor of evaluated points, ``t`` of at least 1.
            Y: A ``t x 1`` tensor of their observed values.
            Yvar: A ``t x 1`` tensor of the noise variances, or ``None``.
            X_pending: A ``p x d`` tensor of points whose evaluation is under way or
                has failed, and which are not worth proposing again.
            n: The number of points to propose.
            seed: The seed of whatever the strategy draws.

        Returns:
            An ``n x d`` tensor of points of the domain.
        """

    def propose_batch(self, X: Tensor, Y: Tensor, seeds: list[int]) -> Tensor:
        """Propose the next point of each of several runs at once; not all can.

        Args:
            X: An ``S x t x d`` tensor of evaluated points.
            Y: An ``S x t x 1`` tensor of their observed values.
            seeds: The ``S`` seeds of the runs.

        Returns:
            An ``S x d`` tensor.
        """
        raise UnsupportedError(
            "Expected a strategy whose runs can be one batch, got "
            f"{type(self).__name__}."
        )

    def check(self, X: Tensor, X_pending: Tensor | None, n: int) -> None:
        """Raise unless ``propose`` has been given points of the domain.

        Args:
            X: The evaluated points.
            X_pending: The points under way, or ``None``.
            n: The number of points to propose.
        """
        check_number("n", n, 1)
        for name, points in (("X", X), ("X_pending", X_pending)):
            if points is not None:
                check_points(name, points, self.domain.dim, "m")
                check_like(name, points, self.domain.bounds)

    def recommend(
        self, X: Tensor, Y: Tensor, Yvar: Tensor | None = None
    ) -> Recommendation:
        """Recommend the setting whose expected worst case is best.

        Args:
            X: A ``t x d`` tensor of evaluated points.
            Y: A ``t x 1`` tensor of their observed values; with constraints ``t x m``.
            Yvar: A tensor of the noise variances of the same shape, or ``None``.

        Returns:
            The recommendation.
        """
        model = self.fit(X, Y, Yvar)
        if self.constraints is None:
            return recommend(model, self.domain, self.maximize, self.seed)
        return recommend_constrained(
            model, self.domain, self.maximize, self.constraints, self.seed
        )

    def fit(self, X: Tensor, Y: Tensor, Yvar: Tensor | None = None) -> Model:
        """Fit the model, or return the last one if the data are still the same.

        Args:
            X: A ``t x d`` tensor of evaluated points.
            Y: A ``t x 1`` tensor of their observed values; with constraints ``t x m``
                for the ``m`` outputs.
            Yvar: A tensor of the noise variances of the same shape, or ``None``.

        Returns:
            The model; with constraints a list of a model for each output.
        """
        data = [X, Y] if Yvar is None else [X, Y, Yvar]
        if self._last_fit is None or not same_data(self._last_fit[0], data):
            if self.constraints is None:
                model = self._fit_output(X, Y, Yvar)
            else:
                self._check_outputs(Y)
                noises = [None] * Y.shape[-1] if Yvar is None else Yvar.split(1, -1)
                outputs = zip(Y.split(1, dim=-1), noises, strict=True)
                model = ModelListGP(*(self._fit_output(X, *own) for own in outputs))
            self._last_fit = [tensor.clone() for tensor in data], model
        return self._last_fit[1]

    def _check_outputs(self, Y: Tensor) -> None:
        """Raise unless there are values of all outputs."""
        needed = 1 + max(self.constraints or [0])
        if Y.shape[-1] < needed:
            raise BotorchTensorDimensionError(
                f"Expected `Y` of at least {needed} columns, the objective and the "
                f"outputs of `constraints`, got shape {tuple(Y.shape)}."
            )
        check_finite(Y=Y)

    def _fit_output(self, X: Tensor, Y: Tensor, Yvar: Tensor | None) -> Any:
        """Fit the model of a single output."""
        # A user's factory need not know of categories that do not exist.
        cat_dims = self.domain.cat_dims
        return self.model_factory(
            X,
            Y,
            Yvar,
            self.domain.evaluations.bounds,
            self.seed,
            **({"cat_dims": cat_dims} if cat_dims else {}),
        )

    def believe(
        self, X: Tensor, Y: Tensor, Yvar: Tensor | None, X_pending: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Take pending points for observations of the posterior mean.

        This is the kriging believer [Ginsbourger2010kriging]_, for methods that know
        nothing of pending points. The model is fitted to all of them, so that pending
        points count for a ``refresh`` of its hyperparameters, too.

        Args:
            X: A ``t x d`` tensor of evaluated points.
            Y: A ``t x 1`` tensor of their observed values.
            Yvar: A ``t x 1`` tensor of the noise variances, or ``None``.
            X_pending: A ``p x d`` tensor of points under way.

        Returns:
            All ``t + p`` points, values and noise variances; the noise of a pending
            point is the average of the others.
        """
        if len(X_pending) == 0:
            return X, Y, Yvar
        model = self.fit(X, Y, Yvar)
        outputs: Any = model.models if isinstance(model, ModelListGP) else [model]
        with torch.no_grad():
            means = [mean_function(own)(X_pending).reshape(-1, 1) for own in outputs]
            mean = torch.cat(means, dim=-1)
        if Yvar is not None:
            Yvar = torch.cat([Yvar, Yvar.mean(dim=0).expand_as(mean)])
        return torch.cat([X, X_pending]), torch.cat([Y, mean]), Yvar


class ModelStrategy(Strategy):
    """Proposes all points at once, from a model of the data."""

    @abstractmethod
    def _propose(
        self, model: Model, X: Tensor, X_pending: Tensor | None, n: int, seed: int
    ) -> Tensor:
        """Propose ``n x d`` points; the arguments are those of ``propose``."""

    def propose(
        self,
        X: Tensor,
        Y: Tensor,
        Yvar: Tensor | None = None,
        X_pending: Tensor | None = None,
        n: int = 1,
        seed: int = 0,
    ) -> Tensor:
        """Fit the model, and propose points to evaluate next.

        Args:
            X: A ``t x d`` tensor of evaluated points.
            Y: A ``t x 1`` tensor of their observed values.
            Yvar: A ``t x 1`` tensor of the noise variances, or ``None``.
            X_pending: A ``p x d`` tensor of pending points.
            n: The number of points.
            seed: The seed of whatever the strategy draws.

        Returns:
            An ``n x d`` tensor.
        """
        self.check(X, X_pending, n)
        return self._propose(self.fit(X, Y, Yvar), X, X_pending, n, seed)


class SequentialStrategy(Strategy):
    """Proposes one point after the other, each with its predecessors pending."""

    @abstractmethod
    def propose_one(
        self, X: Tensor, Y: Tensor, Yvar: Tensor | None, X_pending: Tensor, seed: int
    ) -> Tensor:
        """Propose the point to evaluate next.

        Args:
            X: A ``t x d`` tensor of evaluated points.
            Y: A ``t x 1`` tensor of their observed values.
            Yvar: A ``t x 1`` tensor of the noise variances, or ``None``.
            X_pending: A ``p x d`` tensor of pending points, ``p`` possibly 0.
            seed: The seed of whatever the strategy draws.

        Returns:
            A ``1 x d`` tensor.
        """

    def propose(
        self,
        X: Tensor,
        Y: Tensor,
        Yvar: Tensor | None = None,
        X_pending: Tensor | None = None,
        n: int = 1,
        seed: int = 0,
    ) -> Tensor:
        """Propose points to evaluate next.

        Args:
            X: A ``t x d`` tensor of evaluated points.
            Y: A ``t x 1`` tensor of their observed values.
            Yvar: A ``t x 1`` tensor of the noise variances, or ``None``.
            X_pending: A ``p x d`` tensor of pending points.
            n: The number of points.
            seed: The seed of whatever the strategy draws.

        Returns:
            An ``n x d`` tensor.
        """
        self.check(X, X_pending, n)
        pending = X[:0] if X_pending is None else X_pending
        for _ in range(n):
            point = self.propose_one(X, Y, Yvar, pending, seed)
            pending = torch.cat([pending, point])
        return pending[len(pending) - n :]


StrategyClass = TypeVar("StrategyClass", bound=type[Strategy])


def register_strategy(name: str) -> Callable[[StrategyClass], StrategyClass]:
    """Register a strategy under a name; a decorator for its class.

    Args:
        name: The name.

    Returns:
        The decorator.
    """

    def register(strategy: StrategyClass) -> StrategyClass:
        if _STRATEGIES.get(name, strategy) is not strategy:
            raise InputDataError(
                "Expected `name` to be new, got "
                f"{name!r}, which belongs to {_STRATEGIES[name].__name__}."
            )
        _STRATEGIES[name] = strategy
        return strategy

    return register


def available_strategies() -> list[str]:
    """The names of all strategies, sorted."""
    return sorted(_STRATEGIES)


def make_strategy(
    name: str, domain: RobustDomain, *, maximize: bool, **options: Any
) -> Strategy:
    """Build a strategy by its name.

    Args:
        name: One of ``available_strategies()``.
        domain: The domain.
        maximize: Whether the worst case is to be maximised.
        **options: Further arguments of the strategy's class.

    Returns:
        The strategy.

    Example:
        >>> strategy = make_strategy("stable_opt", domain, maximize=False, sqrt_beta=1)
        >>> strategy.propose(train_X, train_Y, seed=0)
        >>> strategy.recommend(train_X, train_Y)
    """
    if name not in _STRATEGIES:
        raise InputDataError(
            f"Expected `name` to be a strategy among "
            f"{', '.join(available_strategies())}, got {name!r}."
        )
    strategy = _STRATEGIES[name]
    arguments = signature(strategy)
    try:
        arguments.bind(domain, maximize=maximize, **options)
    except TypeError as error:
        known = [
            key for key in arguments.parameters if key not in ("domain", "maximize")
        ]
        raise InputDataError(
            f"Expected `options` of {name!r} to be among {', '.join(known)}, {error}."
        ) from error
    return strategy(domain, maximize=maximize, **options)
