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
from functools import reduce
from itertools import accumulate
from numbers import Integral
from typing import NamedTuple

import torch
from botorch.exceptions.errors import BotorchTensorDimensionError, InputDataError
from botorch.models.model import Model
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor

from botorch_res.checks import check_number, check_seed
from botorch_res.domain import RobustDomain
from botorch_res.models import ExactGPView
from botorch_res.sampling.batch_function import BatchFunction
from botorch_res.sampling.expansion import Expansion
from botorch_res.sampling.frequencies import (
    draw_plain_frequencies,
    rank_columns,
    stretch_frequencies,
)
from botorch_res.sampling.levels import at_levels
from botorch_res.sampling.prior_mean import add_prior_mean
from botorch_res.sampling.term_space import (
    TermSpace,
    build_expansion,
    read_levels,
    read_spaces,
)
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
        model: An exact single-output GP such as ``SingleTaskGP``, single or batched, or
            the view of one. Its mean is constant or linear. Its kernel is made of
            squared exponential and Matern kernels, with or without ARD, by sums,
            products, ``ScaleKernel`` and ``active_dims``. Factors of columns that the
            domain lists can be any kernel.
        num_samples: The number ``C`` of functions (for each model of a batch).
        num_features: The number ``F`` of Fourier features, an even number.
        method: ``"matheron"`` or ``"weight"``, see the module's docstring.
        seed: Makes the functions reproducible, and leaves torch's global generator
            alone. A batch of models can have one seed for each model. The functions of
            each are then those of the single model with that seed.
        domain: The domain of the problem, if known. It distinguishes columns that look
            the same to the model, see ``rank_columns``. It lists the values of columns
            in which the kernel has no Fourier features. For these the samples are
            exact joint samples.

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
        levels = read_levels(view, domain)
        spaces = read_spaces(view, levels)
        drawn, normal = _draw_random(view, spaces, num_samples, num_features, seed)
        is_theta = None
        if domain is not None and view.train_inputs.shape[-1] == dim:
            columns = torch.arange(dim, device=view.train_inputs.device)
            theta = torch.tensor(domain.theta.columns, device=columns.device)
            is_theta = torch.isin(columns, theta)
        features = [
            _make_features(view, *term, is_theta)
            for term in zip(spaces, drawn, strict=True)
        ]
        terms = _condition(view, features, normal, method)
        return add_prior_mean(view, levels, terms)


class Features(NamedTuple):
    """The Fourier features of a term of the kernel.

    Attributes:
        space: The space of the term.
        frequencies: ``batch_shape x F / 2 x d`` frequencies.
        amplitude: ``batch_shape x 1 x F`` standard deviations of the weights.
        at_data: ``batch_shape x t x F`` features of the observations, with amplitudes.
    """

    space: TermSpace
    frequencies: Tensor
    amplitude: Tensor
    at_data: Tensor

    @property
    def num_weights(self) -> int:
        """The number of weights of a sample, ``F`` for each level."""
        return self.space.root.shape[-1] * self.amplitude.shape[-1]


def _draw_random(
    view: ExactGPView,
    spaces: Sequence[TermSpace],
    num_samples: int,
    num_features: int,
    seed: int | Sequence[int] | None,
) -> tuple[list[list[Tensor]], Tensor]:
    """Draw frequencies of each factor of each term, and all normals, for each model.

    A factor has ``F / 2 x d_factor`` frequencies. There are ``C x (n + t)`` normals,
    for the weights of all terms and the noise of the observations.
    """
    inputs = view.train_inputs
    factors = [factor for term in view.kernel.terms for factor in term.stationary]
    sizes = [len(term.stationary) for term in view.kernel.terms]
    num_weights = sum(
        space.root.shape[-1] * (2 if space.is_constant else num_features)
        for space in spaces
    )
    shape = (num_samples, num_weights + inputs.shape[-2])

    def draw(is_single: bool) -> tuple[list[Tensor], Tensor]:
        frequencies = [
            draw_plain_frequencies(
                factor.smoothness,
                len(factor.columns),
                num_features // 2,
                factor.lengthscale[0 if is_single and factor.is_batch else ...],
            )
            for factor in factors
        ]
        batch_shape = () if is_single else view.batch_shape
        normal = torch.randn_like(inputs.new_empty(*batch_shape, *shape))
        return frequencies, normal

    if not isinstance(seed, Sequence):
        with seeded(seed):
            drawn, normal = draw(is_single=False)
    elif view.batch_shape != (len(seed),):
        raise InputDataError(
            f"Expected one `seed`, or as many as there are models in the batch, got "
            f"{len(seed)} for a model of batch shape {tuple(view.batch_shape)}."
        )
    else:
        # Random generators have no batches. All later arithmetic is batched.
        members = []
        for own in seed:
            with seeded(own):
                members.append(draw(is_single=True))
        drawn = [torch.stack(own) for own in zip(*(m[0] for m in members), strict=True)]
        normal = torch.stack([member[1] for member in members])
    ends = list(accumulate(sizes))
    return [drawn[end - n : end] for n, end in zip(sizes, ends, strict=True)], normal


def _make_features(
    view: ExactGPView,
    space: TermSpace,
    drawn: Sequence[Tensor],
    is_theta: Tensor | None,
) -> Features:
    """Make the features of a term."""
    batch_shape, dim = view.batch_shape, view.train_inputs.shape[-1]
    ranked = []
    for factor, own in zip(space.term.stationary, drawn, strict=True):
        columns = factor.columns
        rank = rank_columns(
            view.train_inputs[..., columns],
            factor.lengthscale.expand(*batch_shape, 1, dim)[..., columns],
            None if is_theta is None else is_theta[columns],
        )
        own = own.expand(*batch_shape, -1, -1)
        ranked.append(own.take_along_dim(rank.unsqueeze(-2), dim=-1))
    if space.is_constant:
        frequencies = space.scale.new_zeros(*batch_shape, 1, dim)
        share = torch.ones_like(frequencies[..., 0])
    else:
        stretched, share = stretch_frequencies(ranked, space.kernel.smoothness)
        frequencies = _combine(space, stretched)
    amplitude = (space.variance * share.unsqueeze(-2)).sqrt().tile(2)
    phase = space.centers @ frequencies.mT
    at_data = amplitude * torch.cat([phase.cos(), phase.sin()], dim=-1)
    return Features(space, frequencies, amplitude, at_data)


def _combine(space: TermSpace, frequencies: Sequence[Tensor]) -> Tensor:
    """Add the frequencies of the factors of a term, in units of its scale."""
    dim = space.scale.shape[-1]
    total = []
    for i, (factor, own) in enumerate(
        zip(space.term.stationary, frequencies, strict=True)
    ):
        if len(factor.columns) < dim:
            wide = own.new_zeros(*own.shape[:-1], dim)
            wide[..., factor.columns] = own
            own = wide
        total.append(
            own if space.kernel.shares is None else own * space.kernel.shares[i]
        )
    return reduce(torch.add, total)


def _condition(
    view: ExactGPView, terms: Sequence[Features], normal: Tensor, method: str
) -> list[Expansion]:
    """Make prior samples of all terms and condition their sum on the observations."""
    sizes = [term.num_weights for term in terms]
    num_data = view.train_inputs.shape[-2]
    *weights, noise = normal.split([*sizes, num_data], dim=-1)
    noise = view.noise.unsqueeze(-2).sqrt() * noise
    residual = view.residual.unsqueeze(-2)
    prior = []
    for term, own in zip(terms, weights, strict=True):
        own = _at_levels(term, own)
        residual = residual - _at_observations(view, term, own)
        prior.append(own)
    residual = residual - noise
    if method == "matheron":
        correction = residual @ view.whitener.mT @ view.whitener
    else:
        parts = (
            term.space.between_data * (term.at_data @ term.at_data.mT) for term in terms
        )
        covariance = reduce(torch.add, parts) + torch.diag_embed(view.noise)
        factor = psd_safe_cholesky(covariance)
        correction = torch.cholesky_solve(residual.mT, factor).mT
    found = []
    for term, own in zip(terms, prior, strict=True):
        pulls = correction
        if term.space.levels is not None:
            pulls = correction.unsqueeze(-2) * term.space.at_data.unsqueeze(-3)
        amplitude, at_data = term.amplitude, term.at_data
        if term.space.levels is not None:
            amplitude, at_data = amplitude.unsqueeze(-3), at_data.unsqueeze(-3)
        if method == "matheron" and not term.space.is_constant:
            made = build_expansion(
                view, term.space, term.frequencies, amplitude * own, pulls
            )
        else:
            own = amplitude * (own + pulls @ at_data)
            made = build_expansion(view, term.space, term.frequencies, own, None)
        found.append(made)
    return found


def _at_levels(term: Features, weights: Tensor) -> Tensor:
    """Turn independent weights into those of each level."""
    if term.space.levels is None:
        return weights
    weights = weights.unflatten(-1, (term.space.root.shape[-1], -1))
    return term.space.root.unsqueeze(-3) @ weights


def _at_observations(view: ExactGPView, term: Features, weights: Tensor) -> Tensor:
    """The ``batch_shape x C x t`` values of a term at the observations."""
    if term.space.levels is None:
        return weights @ term.at_data.mT
    level = term.space.levels.index(view.original_inputs)
    own = at_levels(weights, level.unsqueeze(-2).unsqueeze(-3)).squeeze(-4)
    return (own * term.at_data.unsqueeze(-3)).sum(dim=-1)


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
