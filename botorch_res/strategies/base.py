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
from botorch.exceptions.errors import BotorchTensorDimensionError
from botorch.models.model import Model
from torch import Tensor

from botorch_res.domain import RobustDomain
from botorch_res.limits import check_number, check_numbers
from botorch_res.models.fitting import DefaultGP, ModelFactory, same_data
from botorch_res.optim.arguments import check_domain
from botorch_res.optim.recommend import mean_function
from botorch_res.strategies.recommendation import Recommendation, recommend

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
    """

    domain: RobustDomain
    _: KW_ONLY
    maximize: bool
    model_factory: ModelFactory = None  # type: ignore[assignment]
    seed: int = 0
    _last_fit: tuple[list[Tensor], Model] | None = field(
        default=None, init=False, repr=False
    )

    def __post_init__(self) -> None:
        check_domain(self.domain)
        check_numbers(self)
        given: ModelFactory | None = self.model_factory
        self.model_factory = DefaultGP() if given is None else given

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

    def check(self, X: Tensor, X_pending: Tensor | None, n: int) -> None:
        """Raise unless ``propose`` has been given points of the domain.

        Args:
            X: The evaluated points.
            X_pending: The points under way, or ``None``.
            n: The number of points to propose.
        """
        check_number("n", n, 1)
        bounds = self.domain.bounds
        for name, points in (("X", X), ("X_pending", X_pending)):
            if points is not None and (
                points.shape != (len(points), self.domain.dim)
                or (points.dtype, points.device) != (bounds.dtype, bounds.device)
            ):
                raise BotorchTensorDimensionError(
                    f"Expected `{name}` of shape n x {self.domain.dim}, of "
                    f"{bounds.dtype} and on {bounds.device}, as the domain is, got "
                    f"shape {tuple(points.shape)}, {points.dtype} on {points.device}."
                )

    def recommend(
        self,
        X: Tensor,
        Y: Tensor,
        Yvar: Tensor | None = None,
        last_point: bool = False,
    ) -> Recommendation:
        """Recommend the robust optimum of the model's posterior mean.

        Args:
            X: A ``t x d`` tensor of evaluated points.
            Y: A ``t x 1`` tensor of their observed values.
            Yvar: A ``t x 1`` tensor of the noise variances, or ``None``.
            last_point: Recommend the last of the evaluated points instead, by which
                some studies judge a strategy.

        Returns:
            The recommendation.
        """
        model = self.fit(X, Y, Yvar)
        point = X[-1] if last_point else None
        return recommend(model, self.domain, self.maximize, self.seed, point)

    def fit(self, X: Tensor, Y: Tensor, Yvar: Tensor | None = None) -> Model:
        """Fit the model, or return the last one if the data are still the same.

        Args:
            X: A ``t x d`` tensor of evaluated points.
            Y: A ``t x 1`` tensor of their observed values.
            Yvar: A ``t x 1`` tensor of the noise variances, or ``None``.

        Returns:
            The model.
        """
        data = [X, Y] if Yvar is None else [X, Y, Yvar]
        if self._last_fit is not None:
            known, model = self._last_fit
            if same_data(known, data):
                return model
        model = self.model_factory(X, Y, Yvar, self.domain.bounds, self.seed)
        self._last_fit = [tensor.clone() for tensor in data], model
        return model

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
        with torch.no_grad():
            mean = mean_function(model)(X_pending).reshape(-1, 1)
        if Yvar is not None:
            Yvar = torch.cat([Yvar, Yvar.mean().expand_as(mean)])
        return torch.cat([X, X_pending]), torch.cat([Y, mean]), Yvar


StrategyClass = TypeVar("StrategyClass", bound=type[Strategy])


def register_strategy(name: str) -> Callable[[StrategyClass], StrategyClass]:
    """Make a strategy known by a name; a decorator for its class.

    Args:
        name: The name.

    Returns:
        The decorator.
    """

    def register(strategy: StrategyClass) -> StrategyClass:
        if _STRATEGIES.get(name, strategy) is not strategy:
            raise ValueError(
                f"The name {name!r} belongs to {_STRATEGIES[name].__name__} already."
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
        raise ValueError(
            f"Expected a strategy among {', '.join(available_strategies())}, got "
            f"{name!r}."
        )
    strategy = _STRATEGIES[name]
    arguments = signature(strategy)
    try:
        arguments.bind(domain, maximize=maximize, **options)
    except TypeError as error:
        known = [
            key for key in arguments.parameters if key not in ("domain", "maximize")
        ]
        raise TypeError(
            f"The strategy {name!r} {error}: its options are {', '.join(known)}."
        ) from error
    return strategy(domain, maximize=maximize, **options)
