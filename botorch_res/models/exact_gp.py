r"""The exact-GP view of a BoTorch model.

Robust Entropy Search needs more of a Gaussian process than ``model.posterior``
gives: its factors, its noise, and its moments in the model's own space. ``ExactGPView``
reads them once from a BoTorch model and keeps a frozen copy.

Everything behind the view lives in the *model's space*: inputs after the input
transform, outcomes after the outcome transform. ``transform_inputs`` and
``untransform_outcomes`` are the two doors to the user's units.

A batch of models (replicates, or an ensemble over hyperparameters) is one more
leading dimension. As in BoTorch, the model's ``batch_shape`` stands directly before
the ``n x d`` of a set of points, so points have the shape
``... x batch_shape x n x d`` (or broadcast with it).

References:
.. [Rasmussen2006gaussian]
    C. E. Rasmussen and C. K. I. Williams. Gaussian Processes for Machine Learning.
    MIT Press, 2006. Algorithm 2.1.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from botorch.exceptions.errors import InputDataError, UnsupportedError
from botorch.models.gpytorch import GPyTorchModel, MultiTaskGPyTorchModel
from botorch.models.model import Model
from botorch.models.multitask import MultiTaskGP
from botorch.models.transforms.outcome import (
    ChainedOutcomeTransform,
    StratifiedStandardize,
)
from gpytorch.likelihoods import (
    FixedNoiseGaussianLikelihood,
    GaussianLikelihood,
    HadamardGaussianLikelihood,
)
from gpytorch.means import ConstantMean, LinearMean, MultitaskMean, ZeroMean
from gpytorch.models import ExactGP
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor
from torch.nn import Module

from botorch_res.checks import check_finite
from botorch_res.models.kernel_sum import read_kernel
from botorch_res.models.staged_gp import StagedGP


class ExactGPView(StagedGP):
    """A frozen copy of what an exact single-output GP knows, in the model's space.

    The model itself is left in the mode and state in which it was found, and later
    changes to it do not reach the view.

    Attributes:
        batch_shape: The model's batch shape.
        original_inputs: ``batch_shape x t x d`` training inputs in the user's units.
        train_inputs: ``batch_shape x t x d`` transformed training inputs.
        train_targets: ``batch_shape x t`` transformed training targets.
        noise: ``batch_shape x t`` noise variance of each observation.
        mean_module: The prior mean.
        covar_module: The kernel.
        kernel: The same kernel as a sum of products, for its values.
        outcome_offset: ``batch_shape x 1``; user units are
            ``outcome_offset + outcome_scale * value``.
        outcome_scale: ``batch_shape x 1``.
        cholesky: ``batch_shape x t x t`` lower factor of the noisy training
            covariance.
        residual: ``batch_shape x t`` targets minus prior mean.
        whitener: ``batch_shape x t x t`` inverse of ``cholesky``.
        whitened_residual: ``batch_shape x t`` product of ``whitener`` and
            ``residual``.
        task_column: The column of tasks of a ``MultiTaskGP``, else -1.
        tasks: The names of all tasks, which are whole numbers.
        task_numbers: The position of each task among all of them, by its name; ``None``
            if these are the same.
        task_noise: The noise variance of each task, if each has its own.
    """

    original_inputs: Tensor
    train_inputs: Tensor
    train_targets: Tensor
    noise: Tensor
    outcome_offset: Tensor
    outcome_scale: Tensor
    cholesky: Tensor
    residual: Tensor
    task_column: int
    tasks: tuple[int, ...]
    task_numbers: Tensor | None
    task_noise: Tensor | None

    def __init__(
        self, model: Model, negate: bool = False, model_units: bool = False
    ) -> None:
        """Read a model.

        Args:
            model: A single-output exact GP with training data, such as
                ``SingleTaskGP``, single, batched or ensemble; or a ``MultiTaskGP``,
                whose column of tasks is one of the inputs.
            negate: View the process of the negative function. This is the same, to the
                bit, as viewing the model of the negative data.
            model_units: Leave the outcome transform out, so that the user's units of an
                outcome are those of the model's space.

        Raises:
            UnsupportedError: If the model is not an exact single-output GP with
                Gaussian noise, a one-to-one input transform and an affine outcome
                transform.
            InputDataError: If it has no training data, or data that are not finite.
        """
        super().__init__()
        self.parent = None
        gp: Any = model  # BoTorch's attributes are not typed
        _check_supported(gp)
        self.batch_shape = torch.Size(gp.batch_shape)
        self.mean_module = _frozen_copy(gp.mean_module)
        self.covar_module: Any = _frozen_copy(gp.covar_module)
        transform = getattr(gp, "input_transform", None)
        self.input_transform = None if transform is None else _frozen_copy(transform)
        self.sign = -1.0 if negate else 1.0
        # No column is the task of other models.
        is_multi_task = type(gp) is MultiTaskGP
        self.task_column = gp._task_feature if is_multi_task else -1
        self.tasks = tuple(sorted(gp._expected_task_values)) if is_multi_task else ()
        mapper = getattr(gp, "_task_mapper", None)
        self.register_buffer("task_numbers", mapper)
        self.register_buffer("task_noise", None)

        with torch.no_grad():
            inputs = original = gp.train_inputs[0]
            if gp._has_transformed_inputs:
                original = gp._original_train_inputs
                if original.ndim > inputs.ndim:
                    # ``subset_output`` keeps those of all outcomes, which are the same.
                    original = original.select(-3, 0)
            elif transform is not None:
                inputs = transform.preprocess_transform(inputs)
            inputs = self._number_tasks(inputs)
            noise = gp.likelihood.noise.detach()
            if type(gp.likelihood) is HadamardGaussianLikelihood:
                self.task_noise = noise.flatten()
                noise = self._of_task(self.task_noise, inputs)
            targets = self.sign * gp.train_targets.detach()
            shape = torch.Size([*self.batch_shape, inputs.shape[-2]])
            offset, scale = _affine_outcome(gp, targets)
            if model_units:
                offset, scale = torch.zeros_like(offset), torch.ones_like(scale)
            data = {
                "original_inputs": original.detach().expand(*shape, original.shape[-1]),
                "train_inputs": inputs.detach().expand(*shape, inputs.shape[-1]),
                "train_targets": targets.expand(shape),
                "noise": noise.expand(shape),
                "outcome_offset": (self.sign * offset).expand(*self.batch_shape, 1),
                "outcome_scale": scale.expand(*self.batch_shape, 1),
            }
            check_finite(**data)
            self.kernel = read_kernel(self.covar_module, inputs)
            _check_forward(gp, inputs)
            for name, value in data.items():
                self.register_buffer(name, value.clone())
            self._factorise()

    def _factorise(self) -> None:
        """Make, once, the factors that every prediction uses."""
        covariance = self.prior_covariance(self.train_inputs, self.train_inputs)
        # A repair is announced by ``psd_safe_cholesky`` with the jitter it took.
        cholesky = psd_safe_cholesky(covariance + torch.diag_embed(self.noise))
        residual = self.train_targets - self.prior_mean(self.train_inputs)
        identity = torch.eye(
            cholesky.shape[-1], dtype=cholesky.dtype, device=cholesky.device
        )
        whitener = torch.linalg.solve_triangular(cholesky, identity, upper=False)
        self.register_buffer("cholesky", cholesky)
        self.register_buffer("residual", residual)
        self.register_buffer("whitener", whitener)
        self.register_buffer(
            "whitened_residual", (whitener @ residual.unsqueeze(-1)).squeeze(-1)
        )

    @property
    def observation_noise(self) -> Tensor:
        """Noise variance of a new observation: the average over the data.

        This is BoTorch's convention, too; for an inferred noise level it is that
        level. Shape ``batch_shape``.
        """
        return self.noise.mean(dim=-1)

    def noise_at(self, X: Tensor) -> Tensor:
        """Noise variance of a new observation at each point.

        Args:
            X: ``... x batch_shape x n x d`` points in the user's units.

        Returns:
            Variances that broadcast with ``... x batch_shape x n``. They are those of
            the points' tasks, if each task has its own, otherwise the average over the
            data.
        """
        if self.task_noise is None:
            return self.observation_noise.unsqueeze(-1)
        return self._of_task(self.task_noise, self.transform_inputs(X))

    @property
    def has_constant_mean(self) -> bool:
        """Whether the prior mean is a ``ConstantMean`` or a ``ZeroMean``."""
        return type(self.mean_module) in (ConstantMean, ZeroMean)

    @property
    def mean_columns(self) -> list[int]:
        """The column of tasks, if each has a constant prior mean of its own."""
        module = self.mean_module
        if type(module) is not MultitaskMean or not all(
            type(base) in (ConstantMean, ZeroMean) for base in module.base_means
        ):
            return []
        return [self.task_column]

    def check_mean(self) -> None:
        """Raise an ``UnsupportedError`` unless the prior mean is constant or linear.

        It may be another constant for each task.
        """
        is_linear = type(self.mean_module) is LinearMean
        if not (self.has_constant_mean or is_linear or self.mean_columns):
            raise UnsupportedError(
                "Expected a model with a ConstantMean, a ZeroMean or a LinearMean, got "
                f"{type(self.mean_module).__name__}."
            )

    @property
    def mean_weights(self) -> Tensor:
        """Weights of the kernels in the posterior mean, ``batch_shape x t x 1``."""
        return self.whitener.mT @ self.whitened_residual.unsqueeze(-1)

    def transform_inputs(self, X: Tensor) -> Tensor:
        """Carry points from the user's units to the model's space.

        Args:
            X: ``... x batch_shape x n x d`` points in the user's units.

        Returns:
            The same points in the model's space.
        """
        if self.input_transform is not None:
            X = self.input_transform(X)
        return self._number_tasks(X)

    def _number_tasks(self, X: Tensor) -> Tensor:
        """Replace the names of tasks, which are whole numbers, by their positions."""
        if self.task_numbers is None:
            return X
        is_task = torch.arange(X.shape[-1], device=X.device) == self.task_column
        number = self.task_numbers[X.detach()[..., self.task_column].round().long()]
        return torch.where(is_task, number.unsqueeze(-1), X)

    def _of_task(self, values: Tensor, X: Tensor) -> Tensor:
        """Select the values of the task of each point, of ``... x num_tasks``."""
        task = X.detach()[..., self.task_column].round().long()
        shape = torch.broadcast_shapes(values.shape[:-1], task.shape)
        values = values.expand(*shape, values.shape[-1])
        return values.gather(-1, task.expand(shape).unsqueeze(-1)).squeeze(-1)

    def untransform_outcomes(self, values: Tensor) -> Tensor:
        """Carry outcomes from the model's space to the user's units.

        Args:
            values: ``... x batch_shape x n`` outcomes in the model's space.

        Returns:
            The same outcomes in the user's units.
        """
        return self.outcome_offset + self.outcome_scale * values

    def prior_mean(self, X: Tensor) -> Tensor:
        """Prior mean.

        Args:
            X: ``... x batch_shape x n x d`` points in the model's space.

        Returns:
            ``... x batch_shape x n`` prior means.
        """
        if type(self.mean_module) is MultitaskMean:
            others = [i for i in range(X.shape[-1]) if i != self.task_column]
            return self.sign * self._of_task(self.mean_module(X[..., others]), X)
        mean: Tensor = self.sign * self.mean_module(X)
        return mean

    def prior_covariance(self, X1: Tensor, X2: Tensor) -> Tensor:
        """Prior covariance between all pairs of points.

        Args:
            X1: ``... x batch_shape x n x d`` points in the model's space.
            X2: ``... x batch_shape x m x d`` points in the model's space.

        Returns:
            ``... x batch_shape x n x m`` covariances.
        """
        return self.kernel.matrix(X1, X2)

    def prior_pair_covariance(self, X1: Tensor, X2: Tensor) -> Tensor:
        """Prior covariance of each point with its partner.

        Args:
            X1: ``... x batch_shape x n x d`` points in the model's space.
            X2: ``... x batch_shape x n x d`` partners.

        Returns:
            ``... x batch_shape x n`` covariances.
        """
        return self.kernel.pairs(X1, X2)

    def prior_variance(self, X: Tensor) -> Tensor:
        """Prior variance at each point.

        Args:
            X: ``... x batch_shape x n x d`` points in the model's space.

        Returns:
            ``... x batch_shape x n`` variances.
        """
        return self.kernel.variance(X)

    @property
    def points(self) -> Tensor:  # type: ignore[override]
        """The training inputs."""
        return self.train_inputs


def _frozen_copy(module: Module) -> Module:
    """Copy a module in evaluation mode, its parameters closed to autograd."""
    copy: Module = deepcopy(module).eval().requires_grad_(False)
    return copy


def _check_supported(model: Any) -> None:
    """Raise unless the view's formulas are those of the model."""
    name = type(model).__name__
    is_multi_task = type(model) is MultiTaskGP
    if not all(isinstance(model, base) for base in (ExactGP, GPyTorchModel)):
        raise UnsupportedError(
            f"Expected an exact GP such as SingleTaskGP, but got {name}."
        )
    if not is_multi_task and (
        isinstance(model, MultiTaskGPyTorchModel) or model.num_outputs != 1
    ):
        raise UnsupportedError(
            f"Expected a single-output model or a MultiTaskGP, but got {name} with "
            f"{model.num_outputs} output(s)."
        )
    if model.train_targets is None or model.train_targets.numel() == 0:
        raise InputDataError(
            f"Expected a model with training data, but {name} has none."
        )
    for attribute in ("mean_module", "covar_module"):
        if not isinstance(getattr(model, attribute, None), Module):
            raise UnsupportedError(
                f"Expected {name}.{attribute} to be a module, but got "
                f"{getattr(model, attribute, None)!r}; a fully Bayesian model must be "
                "fitted first."
            )
    # Exact types: subclasses of either change what ``noise`` means.
    if type(model.likelihood) not in (
        GaussianLikelihood,
        FixedNoiseGaussianLikelihood,
        HadamardGaussianLikelihood,
    ):
        raise UnsupportedError(
            "Expected the likelihood to be GaussianLikelihood, "
            "FixedNoiseGaussianLikelihood or HadamardGaussianLikelihood, but got "
            f"{type(model.likelihood).__name__}."
        )
    transform = getattr(model, "input_transform", None)
    if transform is not None and transform.is_one_to_many:
        raise UnsupportedError(
            "Expected an input transform that maps one point to one point, but got "
            f"{type(transform).__name__}."
        )


def _check_forward(model: Any, inputs: Tensor) -> None:
    """Raise if a prior is not what the mean and covariance modules say.

    BoTorch's own models say the same. A class with a ``forward`` of its own is asked at
    the transformed training inputs.
    """
    if type(model).forward.__module__.startswith("botorch."):
        return
    prior = deepcopy(model).eval().forward(inputs)
    mean, covariance = model.mean_module(inputs), model.covar_module(inputs).to_dense()
    if not (
        torch.allclose(prior.mean, mean)
        and torch.allclose(prior.covariance_matrix, covariance)
    ):
        name = type(model).__name__
        raise UnsupportedError(
            f"Expected {name}.forward to give the moments of {name}.mean_module and "
            f"{name}.covar_module, but it gives others."
        )


def _is_affine(transform: Any) -> bool:
    """Whether an outcome transform is one affine map for all inputs."""
    if isinstance(transform, ChainedOutcomeTransform):
        return all(_is_affine(link) for link in transform.values())
    return bool(transform._is_linear) and not isinstance(
        transform, StratifiedStandardize
    )


def _affine_outcome(model: Any, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Offset and scale, ``batch_shape x 1``, of the outcome transform's inverse."""
    zero = torch.zeros_like(targets[..., :1])
    transform = getattr(model, "outcome_transform", None)
    if transform is None:
        return zero, torch.ones_like(zero)
    if not _is_affine(transform):
        raise UnsupportedError(
            "Expected an affine outcome transform such as Standardize, but got "
            f"{type(transform).__name__}."
        )
    offset = transform.untransform(zero.unsqueeze(-1))[0].squeeze(-1)
    one = transform.untransform(torch.ones_like(zero).unsqueeze(-1))[0].squeeze(-1)
    return offset, one - offset
