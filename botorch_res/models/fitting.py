r"""Factories that turn observations into a fitted BoTorch model.

A factory is called with data in the user's units and the bounds of the domain, and
returns a model whose ``posterior`` is in the user's units again: the model carries the
scaling of inputs to the unit cube and of outcomes to order one. Every factory accepts
a single observation, repeated points, constant outcomes and outcomes of any magnitude.
All but ``BayesianGP`` also accept a batch of data sets of equal size, ``batch_shape x n
x d``: every member of the resulting batched model is the model of its own data set.

The kernel is squared exponential in columns of numbers. In columns whose values are
codes of categories it is categorical: the correlation of two functions of different
category is ``exp(-1 / lengthscale)``, whatever the codes. The kernel is the product of
both, so that each category has a function of its own, more or less like the others.

- ``DefaultGP``: priors and bounds that keep a fit on few points sane; noise given or
  inferred. The one to use when nothing else is known.
- ``MaximumLikelihoodGP``: bounded maximum likelihood, as in [Weichert2024robust]_.
- ``FixedGP``: hyperparameters that are known.
- ``BayesianGP``: an ensemble over samples of the hyperparameters (the extra ``bayes``).

References:
.. [Weichert2024robust]
    D. Weichert, A. Kister, S. Houben, P. Link and G. Ernis. Robust Entropy Search for
    Safe Efficient Bayesian Optimization. Uncertainty in Artificial Intelligence, 2024.
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import torch
from botorch.exceptions.errors import BotorchTensorDimensionError, InputDataError
from botorch.exceptions.warnings import OptimizationWarning
from botorch.models import SingleTaskGP
from botorch.models.model import Model
from torch import Tensor

from botorch_res.checks import at_least, check_numbers
from botorch_res.models.hyperparameters import (
    HyperparameterPosterior,
    Hyperparameters,
    LogNormalPrior,
)
from botorch_res.models.scaled_gp import EnsembleGP, ScaledData

# Outcomes are scaled to order one, so that these are fractions of their spread. A fit
# below either has explained the data by nothing or by isolated spikes.
_MIN_SIGNAL = 1e-3
_MIN_LENGTHSCALE = 1e-3


class ModelFactory(Protocol):
    """Anything that turns observations into a BoTorch model."""

    def __call__(
        self,
        X: Tensor,
        Y: Tensor,
        Yvar: Tensor | None,
        bounds: Tensor,
        seed: int = 0,
        cat_dims: Sequence[int] = (),
    ) -> Model:
        """Fit a model.

        Args:
            X: An ``n x d`` tensor of points, in the domain's units.
            Y: An ``n x 1`` tensor of observations.
            Yvar: An ``n x 1`` tensor of the variances of their noise, or ``None``
                when these are not known.
            bounds: The ``2 x d`` bounds of the domain.
            seed: The seed of whatever the fit draws.
            cat_dims: The columns whose values are codes of categories. A strategy
                passes this argument only if its domain has such columns.

        Returns:
            A single-output model.
        """


class GPFactory(ABC):
    """What the factories share: they differ in how they find the hyperparameters."""

    _model_class: ClassVar[type[SingleTaskGP]] = SingleTaskGP
    standardize: bool = True
    min_noise: float = 1e-6
    noise_variance: float | None
    refresh: int = 1

    def __post_init__(self) -> None:
        check_numbers(self)

    def __call__(
        self,
        X: Tensor,
        Y: Tensor,
        Yvar: Tensor | None,
        bounds: Tensor,
        seed: int = 0,
        cat_dims: Sequence[int] = (),
    ) -> SingleTaskGP:
        """Fit a model.

        Args:
            X: A ``batch_shape x n x d`` tensor of points.
            Y: A ``batch_shape x n x 1`` tensor of observations.
            Yvar: A ``batch_shape x n x 1`` tensor of noise variances, or ``None`` if
                they are not known.
            bounds: The ``2 x d`` bounds of the domain.
            seed: The seed of whatever the fit draws.
            cat_dims: The columns whose values are codes of categories.

        Returns:
            The fitted model.
        """
        data = ScaledData(
            X,
            Y,
            Yvar,
            bounds,
            self.min_noise,
            self.standardize,
            self.noise_variance,
            self.refresh,
            cat_dims,
        )
        return data.build(self._hyperparameters(data, seed), self._model_class)

    @abstractmethod
    def _hyperparameters(self, data: ScaledData, seed: int) -> Hyperparameters:
        """The hyperparameters for these data."""


@dataclass(frozen=True)
class DefaultGP(GPFactory):
    """Maximum a-posteriori fit with priors that suit simulations and lab experiments.

    Lengthscales are relative to the width of the domain; the signal's standard
    deviation and the noise are relative to the spread of the outcomes. Lengthscales of
    categories are expected around 2: a correlation of 0.6 between two categories.

    Attributes:
        num_restarts: The number of starting points of the fit.
        min_noise: The smallest noise variance relative to the variance of the
            outcomes. It keeps repeated points harmless.
        noise_variance: The noise variance of observations that come without one,
            relative to the variance of the outcomes; inferred if ``None``. For a
            deterministic simulation use 0: otherwise a kink or a step, which no smooth
            function follows, is taken for noise.

    Example:
        >>> model = DefaultGP()(train_X, train_Y, None, domain.bounds)
    """

    num_restarts: int = at_least(1, 4)
    min_noise: float = at_least(0.0, 1e-6)
    noise_variance: float | None = at_least(0.0, None)

    def _hyperparameters(self, data: ScaledData, seed: int) -> Hyperparameters:
        """The posterior's mode."""
        posterior = default_hyperparameter_posterior(
            data.X, data.y, data.noise, data.cat_dims
        )
        return _fit(posterior, self.num_restarts, seed)


@dataclass(frozen=True)
class MaximumLikelihoodGP(GPFactory):
    """Bounded maximum likelihood with restarts and a fixed noise.

    Attributes:
        noise_variance: The noise variance of observations that come without one, in
            units of the scaled outcomes.
        standardize: Whether to scale the outcomes by their own mean and spread;
            ``False`` if the problem itself is standardised.
        lengthscale_bounds: The bounds of the lengthscales, in units of the domain's
            width; also of those of categories.
        signal_bounds: The bounds of the signal's standard deviation.
        num_restarts: The number of starting points of the fit.
    """

    noise_variance: float = at_least(0.0, 1e-3)
    standardize: bool = True
    lengthscale_bounds: tuple[float, float] = (1e-5, 10.0)
    signal_bounds: tuple[float, float] = (1e-5, 10.0)
    num_restarts: int = at_least(1, 8)

    def _hyperparameters(self, data: ScaledData, seed: int) -> Hyperparameters:
        """The maximum of the likelihood."""
        posterior = HyperparameterPosterior(
            data.X,
            data.y,
            data.noise,
            _flat_prior(0.3, self.lengthscale_bounds),
            _flat_prior(1.0, self.signal_bounds),
            _flat_prior(1.0, (1.0, 1.0)),
            data.cat_dims,
        )
        return _fit(posterior, self.num_restarts, seed)


@dataclass(frozen=True)
class FixedGP(GPFactory):
    """A model with known hyperparameters: nothing is fitted.

    Attributes:
        lengthscale: The lengthscales, one for all inputs or one for each, in units of
            the domain's width. The correlation of different categories is
            ``exp(-1 / lengthscale)``.
        signal_variance: The prior variance.
        noise_variance: The noise variance of observations that come without one.
        standardize: Whether to scale the outcomes by their own mean and spread first.
            The variances then refer to the scaled outcomes.

    Example:
        >>> factory = FixedGP(lengthscale=(0.2, 0.5), noise_variance=1e-4)
        >>> model = factory(train_X, train_Y, None, domain.bounds)
    """

    lengthscale: float | Sequence[float]
    signal_variance: float = 1.0
    noise_variance: float = at_least(0.0, 1e-3)
    standardize: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("lengthscale", "signal_variance"):
            value = getattr(self, name)
            if not (torch.as_tensor(value) > 0).all():
                raise InputDataError(f"Expected a positive `{name}`, got {value}.")

    def _hyperparameters(self, data: ScaledData, seed: int) -> Hyperparameters:
        """The given hyperparameters, for every set of data."""
        *batch_shape, _, dim = data.X.shape
        lengthscale = torch.as_tensor(self.lengthscale, dtype=torch.double)
        if lengthscale.ndim > 0 and lengthscale.shape != (dim,):
            raise BotorchTensorDimensionError(
                f"Expected one `lengthscale` or {dim}, got {self.lengthscale}."
            )
        signal_variance = torch.tensor(self.signal_variance, dtype=torch.double)
        return Hyperparameters(
            lengthscale.expand(*batch_shape, dim),
            signal_variance.expand(batch_shape),
            None,
        )


@dataclass(frozen=True)
class BayesianGP(GPFactory):
    """An ensemble over samples of the hyperparameters, with ``DefaultGP``'s priors.

    The samples are drawn with emcee, which the extra ``bayes`` installs. A factory
    remembers its last samples, and draws new ones only if the data they depend on have
    changed.

    Attributes:
        num_samples: The number of samples, and of members of the ensemble.
        num_steps: The number of steps of the sampler's walkers.
        refresh: Draw new hyperparameters with every ``refresh``-th observation only;
            in between the ensemble keeps those of the earlier observations.
        min_noise: As in ``DefaultGP``.
        noise_variance: As in ``DefaultGP``.

    Example:
        >>> model = BayesianGP(num_samples=8)(train_X, train_Y, None, domain.bounds)
    """

    _model_class = EnsembleGP
    num_samples: int = at_least(1, 16)
    num_steps: int = at_least(1, 100)
    refresh: int = at_least(1, 1)
    min_noise: float = at_least(0.0, 1e-6)
    noise_variance: float | None = at_least(0.0, None)
    # For each seed: the data of its last samples, and the samples.
    _last_draw: dict[int, tuple[list[Tensor], Hyperparameters]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def _hyperparameters(self, data: ScaledData, seed: int) -> Hyperparameters:
        """Samples of the posterior, or the last ones if the data are the same."""
        if data.X.ndim != 2:
            raise BotorchTensorDimensionError(
                "Expected `X` of shape n x d, one set of data, got "
                f"{tuple(data.X.shape)}."
            )
        used = data.num_scaling
        noise = None if data.noise is None else data.noise[:used]
        X, y = data.X[:used], data.y[:used]
        current = [X, y, X.new_tensor(data.cat_dims)]
        current += [] if noise is None else [noise]
        known, samples = self._last_draw.get(seed, ([], None))
        if samples is None or not same_data(known, current):
            posterior = default_hyperparameter_posterior(X, y, noise, data.cat_dims)
            parameters = posterior.sample(self.num_samples, self.num_steps, seed)
            samples = posterior.natural(parameters)
            self._last_draw[seed] = current, samples
        return samples


def same_data(first: Sequence[Tensor], second: Sequence[Tensor]) -> bool:
    """Whether two sets of data are equal to the bit, in dtype and device, too.

    Args:
        first: Some tensors.
        second: As many others, or not.

    Returns:
        Whether they are equal.
    """
    return len(first) == len(second) and all(
        (a.dtype, a.device) == (b.dtype, b.device) and torch.equal(a, b)
        for a, b in zip(first, second, strict=True)
    )


def default_hyperparameter_posterior(
    X: Tensor, y: Tensor, noise: Tensor | None, cat_dims: Sequence[int] = ()
) -> HyperparameterPosterior:
    """The hyperparameters' posterior under the priors of ``DefaultGP``.

    The lengthscales' median grows with the root of the dimension, as the distances
    between points do.

    Args:
        X: A ``batch_shape x n x d`` tensor of unit-cube inputs, and codes of
            categories.
        y: A ``batch_shape x n`` tensor of scaled outcomes.
        noise: A ``batch_shape x n`` tensor of noise variances, or ``None``.
        cat_dims: The columns of categories.

    Returns:
        The posterior.
    """
    num_numbers = max(1, X.shape[-1] - len(cat_dims))
    median = min(0.3 * math.sqrt(num_numbers), 5.0)
    return HyperparameterPosterior(
        X,
        y,
        noise,
        lengthscale_prior=LogNormalPrior(median, 1.0, lower=0.01, upper=20.0),
        signal_prior=LogNormalPrior(1.0, 0.7, lower=0.05, upper=10.0),
        noise_prior=LogNormalPrior(1e-4, 2.0, lower=1e-6, upper=1.0),
        cat_dims=cat_dims,
        category_prior=LogNormalPrior(2.0, 1.0, lower=0.1, upper=100.0),
    )


def _fit(
    posterior: HyperparameterPosterior, num_restarts: int, seed: int
) -> Hyperparameters:
    """The mode of a posterior, or its priors' centre where the mode is degenerate."""
    mode, density = posterior.maximize(num_restarts, seed)
    found = posterior.natural(mode)
    failed = ~torch.isfinite(density)
    empty = found.signal_variance.sqrt() < _MIN_SIGNAL
    # Categories may have nothing in common.
    is_category = posterior.is_category
    spiky = ((found.lengthscale < _MIN_LENGTHSCALE) | is_category).all(dim=-1)
    spiky &= ~is_category.all()
    degenerate = failed | empty | spiky
    if not degenerate.any():
        return found
    fallback = posterior.natural(posterior.centre)
    warnings.warn(
        f"{int(degenerate.sum())} of {degenerate.numel()} fits of the hyperparameters "
        f"are degenerate: {posterior.natural(mode[degenerate])}, log density "
        f"{density[degenerate].min():.3g}. The model uses {fallback} instead.",
        OptimizationWarning,
        stacklevel=4,
    )
    mode = torch.where(degenerate.unsqueeze(-1), posterior.centre, mode)
    return posterior.natural(mode)


def _flat_prior(median: float, bounds: tuple[float, float]) -> LogNormalPrior:
    """A prior that restricts to bounds and prefers nothing inside them."""
    median = min(max(median, bounds[0]), bounds[1])
    return LogNormalPrior(median, math.inf, *bounds)
