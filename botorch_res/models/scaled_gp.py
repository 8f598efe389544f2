r"""Observations scaled for a Gaussian process, and the BoTorch model built on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from botorch.exceptions.errors import BotorchTensorDimensionError, InputDataError
from botorch.models import SingleTaskGP
from botorch.models.kernels import CategoricalKernel
from botorch.models.transforms.input import Normalize
from botorch.models.transforms.outcome import Standardize
from botorch.posteriors.fully_bayesian import MCMC_DIM, GaussianMixturePosterior
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import Kernel, ProductKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ZeroMean
from gpytorch.settings import min_fixed_noise
from torch import Tensor

from botorch_res.checks import check_finite, require
from botorch_res.models.hyperparameters import Hyperparameters

GP = TypeVar("GP", bound=SingleTaskGP)


class FixedStandardize(Standardize):
    """An affine outcome transform with given constants, which it never relearns."""

    def __init__(self, offset: Tensor, scale: Tensor) -> None:
        """Store the constants.

        Args:
            offset: A ``batch_shape x 1 x 1`` tensor, in the user's units.
            scale: A ``batch_shape x 1 x 1`` tensor, in the user's units.
        """
        super().__init__(m=1, batch_shape=offset.shape[:-2])
        self.means = offset
        self.stdvs = scale
        self._stdvs_sq = scale.square()
        self._is_trained = torch.tensor(True)
        self.eval()

    def train(self, mode: bool = True) -> FixedStandardize:
        """Stay in evaluation mode: there is nothing to learn.

        Args:
            mode: Ignored.

        Returns:
            The transform.
        """
        super().train(False)
        return self


class EnsembleGP(SingleTaskGP):
    """A batch of models of the same data that predict together: a Gaussian mixture."""

    _is_ensemble = True
    _supports_batched_models = False

    def posterior(
        self, X: Tensor, *args: Any, **kwargs: Any
    ) -> GaussianMixturePosterior:
        """The mixture of the members' posteriors.

        Args:
            X: A ``batch_shape x q x d`` tensor of points.
            *args: As in ``SingleTaskGP``.
            **kwargs: As in ``SingleTaskGP``.

        Returns:
            The mixture, with the members in dimension ``MCMC_DIM``.
        """
        posterior: Any = super().posterior(X.unsqueeze(MCMC_DIM), *args, **kwargs)
        return GaussianMixturePosterior(distribution=posterior.distribution)


def outcome_scale(Y: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and spread of outcomes, with a magnitude in place of a spread of zero.

    ``Standardize`` takes every spread below ``1e-8`` for zero and replaces it by one.
    That is fatal for outcomes of magnitude ``1e-12``, and a constant outcome of
    ``1e12`` would be modelled with an uncertainty of one. Here only a spread that is
    rounding error counts as zero, and the outcomes' magnitude stands in for it.

    Args:
        Y: A ``batch_shape x n x 1`` tensor of outcomes.

    Returns:
        The ``batch_shape x 1 x 1`` offset and scale.
    """
    offset = Y.mean(dim=-2, keepdim=True)
    magnitude = Y.abs().amax(dim=-2, keepdim=True)
    spread = (Y - offset).square().mean(dim=-2, keepdim=True).sqrt()
    smallest = torch.finfo(Y.dtype).tiny ** 0.5
    rounding = 8 * torch.finfo(Y.dtype).eps * magnitude
    scale = torch.where(spread > rounding, spread, magnitude)
    return offset, torch.where(scale > smallest, scale, torch.ones_like(scale))


class ScaledData:
    """Observations in the unit cube and of order one, and the way back.

    Attributes:
        X: The ``batch_shape x n x d`` points in the unit cube; codes of categories are
            left alone.
        y: The ``batch_shape x n`` scaled outcomes.
        noise: The ``batch_shape x n`` variances of their noise, or ``None``.
        offset: The ``batch_shape x 1 x 1`` offset of the outcomes.
        scale: The ``batch_shape x 1 x 1`` scale of the outcomes.
        num_scaling: The number of observations that set offset and scale.
        cat_dims: The columns of categories.
        numbers: All other columns.
    """

    def __init__(
        self,
        X: Tensor,
        Y: Tensor,
        Yvar: Tensor | None,
        bounds: Tensor,
        min_noise: float = 1e-6,
        standardize: bool = True,
        noise_variance: float | None = None,
        refresh: int = 1,
        cat_dims: Sequence[int] = (),
    ) -> None:
        """Scale observations.

        Args:
            X: A ``batch_shape x n x d`` tensor of points, each set of the batch with
                observations of its own.
            Y: A ``batch_shape x n x 1`` tensor of observations.
            Yvar: A ``batch_shape x n x 1`` tensor of noise variances, or ``None``.
            bounds: The ``2 x d`` bounds of the domain.
            min_noise: The smallest noise variance, in units of the scaled outcomes.
            standardize: Whether to scale the outcomes.
            noise_variance: The noise variance, in units of the scaled outcomes, if
                ``Yvar`` is ``None``; ``None`` to leave it open.
            refresh: The scale changes with every ``refresh``-th observation only.
            cat_dims: The columns of ``X`` whose values are codes of categories.
        """
        _check_data(X, Y, Yvar, bounds)
        self.cat_dims = _checked_categories(cat_dims, X.shape[-1])
        self.numbers = [i for i in range(X.shape[-1]) if i not in self.cat_dims]
        self._raw = (X, Y)
        if cat_dims:
            # The transform of inputs leaves codes of categories alone.
            bounds = bounds.clone()
            bounds[:, self.cat_dims] = bounds.new_tensor([[0.0], [1.0]])
        self._bounds = bounds
        # A likelihood with given noise complains of values below its own floor.
        self._min_noise = max(min_noise, min_fixed_noise.value(X.dtype))
        n = X.shape[-2]
        self.num_scaling = max(1, n - n % refresh)
        self.offset, self.scale = outcome_scale(Y[..., : self.num_scaling, :])
        self._standardize = standardize
        if not standardize:
            self.offset = torch.zeros_like(self.offset)
            self.scale = torch.ones_like(self.scale)
        self.X = (X - bounds[0]) / (bounds[1] - bounds[0])
        self.y = ((Y - self.offset) / self.scale).squeeze(-1)
        self.noise = None
        if Yvar is not None:
            self.noise = (Yvar / self.scale.square()).squeeze(-1)
            self.noise = self.noise.clamp_min(self._min_noise)
        elif noise_variance is not None:
            self.noise = torch.full_like(self.y, max(noise_variance, self._min_noise))

    def build(self, values: Hyperparameters, model_class: type[GP]) -> GP:
        """Build the model of these data with the given hyperparameters.

        Args:
            values: The hyperparameters. Their batch shape becomes the model's; it is
                that of the data, or any for a single set of data.
            model_class: The class of the model.

        Returns:
            The model, in evaluation mode, with its parameters closed to autograd.
        """
        X, Y = self._raw
        batch_shape = values.signal_variance.shape
        kernel = ScaleKernel(
            self._correlation(values.lengthscale.to(X)), batch_shape=batch_shape
        ).to(X)
        kernel.outputscale = values.signal_variance.to(X)
        noise = likelihood = None
        if self.noise is not None:
            # A little more than the floor, lest rounding on the way lowers it.
            floor = self._min_noise * (1 + 1e-5)
            variance = self.noise.clamp_min(floor) * self.scale.squeeze(-1).square()
            noise = variance.unsqueeze(-1).expand(*batch_shape, *Y.shape[-2:])
        else:
            likelihood = GaussianLikelihood(
                batch_shape=batch_shape, noise_constraint=GreaterThan(1e-8)
            ).to(X)
            assert values.noise_variance is not None
            likelihood.noise = values.noise_variance.to(X).unsqueeze(-1)
        transform = None
        if self._standardize:
            transform = FixedStandardize(
                self.offset.expand(*batch_shape, 1, 1).clone(),
                self.scale.expand(*batch_shape, 1, 1).clone(),
            )
        model = model_class(
            X.expand(*batch_shape, *X.shape[-2:]),
            Y.expand(*batch_shape, *Y.shape[-2:]),
            noise,
            likelihood=likelihood,
            mean_module=ZeroMean(batch_shape=batch_shape),
            covar_module=kernel,
            input_transform=Normalize(d=X.shape[-1], bounds=self._bounds),
            outcome_transform=transform,
        )
        model.eval().requires_grad_(False)
        return model

    def _correlation(self, lengthscale: Tensor) -> Kernel:
        """The kernel without its variance: a product over numbers and categories."""
        batch_shape, all_numbers = lengthscale.shape[:-1], not self.cat_dims
        factors: list[Kernel] = []
        if self.numbers:
            numbers = RBFKernel(
                ard_num_dims=len(self.numbers),
                batch_shape=batch_shape,
                active_dims=None if all_numbers else tuple(self.numbers),
            ).to(lengthscale)
            numbers.lengthscale = lengthscale[..., self.numbers].unsqueeze(-2)
            factors.append(numbers)
        if self.cat_dims:
            categories = CategoricalKernel(
                ard_num_dims=len(self.cat_dims),
                batch_shape=batch_shape,
                active_dims=tuple(self.cat_dims),
            ).to(lengthscale)
            # BoTorch averages over the columns; here each has a factor of its own.
            own = lengthscale[..., self.cat_dims].unsqueeze(-2)
            categories.lengthscale = own / len(self.cat_dims)
            factors.append(categories)
        return factors[0] if len(factors) == 1 else ProductKernel(*factors)


def _checked_categories(cat_dims: Sequence[int], dim: int) -> list[int]:
    """The columns of categories, in increasing order, or an error."""
    columns = sorted(set(cat_dims))
    if len(columns) < len(cat_dims) or not set(columns) <= set(range(dim)):
        raise InputDataError(
            f"Expected `cat_dims` to be distinct columns from 0 to {dim - 1}, got "
            f"{cat_dims!r}."
        )
    return columns


def _check_data(X: Tensor, Y: Tensor, Yvar: Tensor | None, bounds: Tensor) -> None:
    """Raise unless the data can be modelled."""
    if X.ndim < 2 or X.shape[-2] < 1 or bounds.shape != (2, X.shape[-1]):
        raise BotorchTensorDimensionError(
            "Expected `X` of shape batch_shape x n x d with n of at least 1 and "
            f"`bounds` of shape 2 x d, got {tuple(X.shape)} and {tuple(bounds.shape)}."
        )
    for name, value in (("Y", Y), ("Yvar", Yvar)):
        if value is None:
            continue
        expected = (*X.shape[:-1], 1)
        if value.shape != expected:
            raise BotorchTensorDimensionError(
                f"Expected `{name}` of shape {' x '.join(map(str, expected))}, got "
                f"{tuple(value.shape)}."
            )
        check_finite(**{name: value})
    if Yvar is not None:
        require(Yvar >= 0, "`Yvar` to be at least 0", Yvar)
