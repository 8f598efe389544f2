r"""Function samples from the posterior of a Gaussian process.

A prior sample is a sum of ``F`` random Fourier features with normal weights. Its
frequencies come from BoTorch's ``gen_kernel_features``. Matheron's rule corrects it for
its residual at the ``t`` observations, which makes it a sample of the posterior:

- ``method="matheron"`` corrects with the exact kernel. For any number of observations
  the mean is exact given the frequencies, the covariance is exact on average over them,
  and the variance does not collapse as ``t`` approaches ``F``.
- ``method="weight"`` corrects with the kernel of the features. This is an exact sample
  of the Bayesian linear model with these features. The cost of an evaluation does not
  depend on ``t``. It is accurate for ``t`` well below ``F``.

Both take ``O(t^3 + t F)``; the ``F x F`` matrix of the linear model never appears.
Samples are of the noise-free function, in the user's units. If two models differ only
in the order of their columns, the same seed gives the same functions up to rounding,
with their columns in that order. All samples of a model share their frequencies, so for
one seed their covariance has an error that more samples do not remove.

References:
.. [Wilson2020efficiently]
    J. T. Wilson, V. Borovitskiy, A. Terenin, P. Mostowsky and M. P. Deisenroth.
    Efficiently sampling functions from Gaussian process posteriors. ICML 2020.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any, NamedTuple

import torch
from botorch.exceptions.errors import (
    BotorchTensorDimensionError,
    InputDataError,
    UnsupportedError,
)
from botorch.models.model import Model
from botorch.models.transforms.input import (
    AffineInputTransform,
    ChainedInputTransform,
)
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor
from torch.nn import Module

from botorch_res.checks import check_number, check_seed
from botorch_res.domain import RobustDomain
from botorch_res.models import ExactGPView
from botorch_res.models.stationary_kernel import StationaryKernel
from botorch_res.sampling.batch_function import BatchFunction
from botorch_res.sampling.expansion import Expansion
from botorch_res.sampling.frequencies import (
    draw_plain_frequencies,
    rank_columns,
    stretch_frequencies,
)
from botorch_res.sampling.grid_samples import draw_grid_samples
from botorch_res.seeding import seeded


def draw_fourier_samples(
    model: Model | ExactGPView,
    num_samples: int,
    num_features: int = 512,
    method: str = "matheron",
    seed: int | Sequence[int] | None = None,
    domain: RobustDomain | None = None,
) -> BatchFunction:
    """Draw functions from the posterior of a Gaussian process.

    Args:
        model: An exact single-output GP such as ``SingleTaskGP``, single or batched,
            with a constant or zero mean and a squared exponential or Matern kernel,
            with or without ARD and ``ScaleKernel``; or the view of one.
        num_samples: The number ``C`` of functions (for each model of a batch).
        num_features: The number ``F`` of Fourier features, an even number.
        method: ``"matheron"`` or ``"weight"``, see the module's docstring.
        seed: Makes the functions reproducible, and leaves torch's global generator
            alone. A batch of models can have one seed for each model. The functions of
            each are then those of the single model with that seed.
        domain: The domain of the problem, if known. It distinguishes columns that look
            the same to the model, see ``rank_columns``. A kernel without Fourier
            features needs a domain with two finite parts, on which exact joint samples
            are drawn.

    Returns:
        ``C x batch_shape`` functions.

    Raises:
        UnsupportedError: If the model or its kernel is none of those above.
        InputDataError: If another argument has a wrong value.

    Example:
        >>> samples = draw_fourier_samples(model, num_samples=16, seed=0)
        >>> samples(domain.sample(5, seed=0)).shape
        torch.Size([16, 5])
    """
    _check_arguments(num_samples, num_features, method, seed)
    view = model if isinstance(model, ExactGPView) else ExactGPView(model)
    dim = view.original_inputs.shape[-1]
    if domain is not None and domain.dim != dim:
        raise BotorchTensorDimensionError(
            f"Expected a `domain` with {dim} columns, as many as the inputs "
            f"of the model have, got {domain.dim}."
        )
    with torch.no_grad():
        if view.stationary_kernel is None:
            if isinstance(seed, Sequence):
                raise UnsupportedError(
                    "Expected one `seed` for a kernel without Fourier features, got "
                    f"{len(seed)}."
                )
            with seeded(seed):
                return draw_grid_samples(view, num_samples, domain)
        space = read_space(view, view.stationary_kernel)
        drawn, normal = _draw_random(view, num_samples, num_features, seed)
        is_theta = None
        if domain is not None and space.scale.shape[-1] == dim:
            columns = torch.arange(dim, device=space.scale.device)
            theta = torch.tensor(domain.theta.columns, device=columns.device)
            is_theta = torch.isin(columns, theta)
        rank = rank_columns(view.train_inputs, space.scale, is_theta)
        drawn = drawn.expand(*view.batch_shape, -1, -1)
        drawn = drawn.take_along_dim(rank.unsqueeze(-2), dim=-1)
        return _draw(view, space, drawn, normal, method)


class StationarySpace(NamedTuple):
    """The space in which the model's kernel has unit lengthscale and variance.

    Attributes:
        smoothness: Matern's ``nu``, infinite for the squared exponential.
        variance: ``batch_shape x 1 x 1`` variance of the prior.
        scale: ``batch_shape x 1 x d`` lengthscales.
        shift: ``batch_shape x 1 x d`` centre of the observations.
        centers: ``batch_shape x t x d`` observations.
        slope: ``batch_shape x 1 x d`` derivative by the user's columns, or ``None``.
        mean: ``batch_shape x 1`` prior mean.
    """

    smoothness: float
    variance: Tensor
    scale: Tensor
    shift: Tensor
    centers: Tensor
    slope: Tensor | None
    mean: Tensor


def read_space(view: ExactGPView, kernel: StationaryKernel) -> StationarySpace:
    """Read the space of a model with a stationary kernel and a constant mean.

    Args:
        view: The model.
        kernel: Its kernel.

    Returns:
        The space.

    Raises:
        UnsupportedError: If the mean is not constant.
    """
    view.check_constant_mean()
    inputs = view.train_inputs
    scale = kernel.lengthscale.expand(*view.batch_shape, 1, inputs.shape[-1])
    scaled = inputs / scale
    shift = scaled.mean(dim=-2, keepdim=True)
    slope = None
    if _is_affine(view.input_transform):
        zero = torch.zeros_like(inputs[..., :1, :])
        ends = torch.cat([zero, torch.ones_like(zero)], dim=-2)
        slope = view.transform_inputs(ends).diff(dim=-2) / scale
    return StationarySpace(
        smoothness=kernel.smoothness,
        variance=kernel.outputscale.expand(*view.batch_shape, 1).unsqueeze(-1),
        scale=scale,
        shift=shift,
        centers=scaled - shift,
        slope=slope,
        mean=view.prior_mean(inputs)[..., :1],
    )


def build_expansion(
    view: ExactGPView,
    space: StationarySpace,
    frequencies: Tensor,
    weights: Tensor,
    kernel_weights: Tensor | None,
) -> Expansion:
    """Put an expansion together and convert it to the user's units.

    Args:
        view: The model.
        space: Its space.
        frequencies: ``batch_shape x F / 2 x d`` frequencies.
        weights: ``batch_shape x C x F`` weights of all cosines, then all sines.
        kernel_weights: ``batch_shape x C x t`` weights of the kernel at the
            observations, or ``None``.

    Returns:
        The expansion.
    """
    unit = view.outcome_scale.unsqueeze(-1)
    cosines, sines = (unit * weights).movedim(-2, 0).tensor_split(2, dim=-1)
    centers = space.centers
    if kernel_weights is None:
        centers = centers[..., :0, :]
        kernel_weights = weights[..., :0]
    return Expansion(
        frequencies=frequencies,
        cosines=cosines,
        sines=sines,
        centers=centers,
        kernel_weights=(unit * space.variance * kernel_weights).movedim(-2, 0),
        offset=view.untransform_outcomes(space.mean).squeeze(-1),
        smoothness=space.smoothness,
        scale=space.scale,
        shift=space.shift,
        input_transform=view.input_transform,
        slope=space.slope,
    )


def _draw_random(
    view: ExactGPView,
    num_samples: int,
    num_features: int,
    seed: int | Sequence[int] | None,
) -> tuple[Tensor, Tensor]:
    """Draw ``F / 2 x d`` frequencies and ``C x (F + t)`` normals, for each model."""
    inputs = view.train_inputs
    kernel: Any = view.covar_module
    shape = (num_samples, num_features + inputs.shape[-2])

    def draw(kernel: Any, batch_shape: torch.Size) -> tuple[Tensor, Tensor]:
        drawn = draw_plain_frequencies(kernel, inputs.shape[-1], num_features // 2)
        return drawn, torch.randn_like(inputs.new_empty(*batch_shape, *shape))

    if not isinstance(seed, Sequence):
        with seeded(seed):
            return draw(kernel, view.batch_shape)
    if view.batch_shape != (len(seed),):
        raise InputDataError(
            f"Expected one `seed`, or as many as there are models in the batch, got "
            f"{len(seed)} for a model of batch shape {tuple(view.batch_shape)}."
        )
    single = kernel[0] if kernel.batch_shape else kernel
    # Random generators have no batches. All later arithmetic is batched.
    members = []
    for own in seed:
        with seeded(own):
            members.append(draw(single, torch.Size()))
    frequencies, normal = zip(*members, strict=True)
    return torch.stack(frequencies), torch.stack(normal)


def _draw(
    view: ExactGPView,
    space: StationarySpace,
    drawn: Tensor,
    normal: Tensor,
    method: str,
) -> Expansion:
    """Make prior samples and condition them on the observations."""
    frequencies, share = stretch_frequencies(drawn, space.smoothness)
    amplitude = (space.variance * share.unsqueeze(-2)).sqrt().tile(2)
    phase = space.centers @ frequencies.mT
    features = amplitude * torch.cat([phase.cos(), phase.sin()], dim=-1)
    weights, noise = normal.tensor_split([features.shape[-1]], dim=-1)
    noise = view.noise.unsqueeze(-2).sqrt() * noise
    residual = view.residual.unsqueeze(-2) - weights @ features.mT - noise
    if method == "matheron":
        correction = residual @ view.whitener.mT @ view.whitener
        return build_expansion(
            view, space, frequencies, amplitude * weights, correction
        )
    covariance = features @ features.mT + torch.diag_embed(view.noise)
    correction = torch.cholesky_solve(residual.mT, psd_safe_cholesky(covariance)).mT
    weights = amplitude * (weights + correction @ features)
    return build_expansion(view, space, frequencies, weights, None)


def _is_affine(transform: Module | None) -> bool:
    """Whether an input transform is an affine map of each column."""
    if isinstance(transform, ChainedInputTransform):
        return all(_is_affine(link) for link in transform.values())
    return transform is None or isinstance(transform, AffineInputTransform)


def _check_arguments(
    num_samples: object, num_features: object, method: object, seed: object
) -> None:
    """Raise an error unless the arguments are valid."""
    check_number("num_samples", num_samples, 1)
    if not isinstance(num_features, Integral) or num_features < 2 or num_features % 2:
        raise InputDataError(
            "Expected `num_features` to be a positive even number, got "
            f"{num_features!r}."
        )
    if isinstance(seed, Sequence):
        for own in seed:
            check_seed(own, optional=False)
    else:
        check_seed(seed)
    if method not in ("matheron", "weight"):
        raise InputDataError(
            f"Expected `method` to be 'matheron' or 'weight', got {method!r}."
        )
