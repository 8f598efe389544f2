r"""Frequencies of the Fourier features of a stationary kernel.

By Bochner's theorem a stationary kernel is the mean of ``cos(w.(u - u'))`` over its
spectral density ``p(w)``. Features with frequencies drawn from ``p`` have this kernel
on average. But once there are some dozens of observations, only the highest frequencies
of a function remain uncertain, and ``p`` yields few of these. The variance of posterior
samples would then depend on one or two features: far too low in most draws, and far too
high in a few.

So every other frequency is stretched by ``s = 1 + sqrt(2 / d)`` in ``d`` dimensions.
There, ``|w|^2`` of the squared exponential has mean ``d`` and relative standard
deviation ``sqrt(2 / d)``. The spectral densities of the Matern kernels have heavy
tails: for them, ``s - 1`` is twice as large. The features of frequency ``w`` have the
variance ``p(w) / q(w)``, at most 2, where

    q(w) = (p(w) + s^-d p(w / s)) / 2

is the density of all frequencies together. The kernel remains exact on average (the
balance heuristic), and a single draw is closer to it where it matters. Errors with and
without stretching are in ``benchmarks/results/samples.md``.

References:
.. [Rahimi2007random]
    A. Rahimi and B. Recht. Random features for large-scale kernel machines. Advances in
    Neural Information Processing Systems 20, 2007.
.. [Veach1995optimally]
    E. Veach and L. J. Guibas. Optimally combining sampling techniques for Monte Carlo
    rendering. SIGGRAPH 1995.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from botorch.sampling.pathwise import gen_kernel_features
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel
from torch import Tensor

# Observations are compared to about six digits of a column's range, far above rounding
# errors. The number is not round on purpose: round data are then far from the edges
# between keys.
KEYS_PER_RANGE = 1e6 / math.pi


def draw_plain_frequencies(
    smoothness: float, dim: int, num_frequencies: int, lengthscale: Tensor
) -> Tensor:
    """Draw from the spectral density of a stationary kernel.

    Args:
        smoothness: Matern's ``nu``, infinite for the squared exponential.
        dim: The number ``d`` of columns that count.
        num_frequencies: The number of frequencies.
        lengthscale: ``batch_shape x 1 x k`` lengthscales, for their ``batch_shape``,
            dtype and device only.

    Returns:
        ``batch_shape x num_frequencies x d`` angular frequencies in units of the
        lengthscales.
    """
    batch_shape = lengthscale.shape[:-2]
    if dim == 0:
        return lengthscale.new_zeros(*batch_shape, num_frequencies, 0)
    kernel: Kernel = RBFKernel(batch_shape=batch_shape)
    if not math.isinf(smoothness):
        kernel = MaternKernel(smoothness, batch_shape=batch_shape)
    features = gen_kernel_features(
        kernel.to(lengthscale), num_inputs=dim, num_outputs=2 * num_frequencies
    )
    weight: Tensor = features.weight
    return weight


def rank_columns(
    inputs: Tensor, lengthscale: Tensor, is_theta: Tensor | None = None
) -> Tensor:
    """Number the columns in an order that does not depend on their positions.

    Controllable columns come first. Columns are then compared like words in a
    dictionary: by one observation after the other, in units of the column's range; if
    these agree, by lengthscale; finally by the inputs themselves. Columns that agree in
    all of this keep their order.

    Args:
        inputs: ``batch_shape x t x d`` transformed inputs of the observations.
        lengthscale: ``batch_shape x 1 x d`` lengthscales.
        is_theta: ``d`` booleans: which columns are uncontrollable, if known.

    Returns:
        ``batch_shape x d`` numbers from 0 to ``d - 1``.
    """
    low, high = inputs.amin(dim=-2, keepdim=True), inputs.amax(dim=-2, keepdim=True)
    width = torch.where(high > low, high - low, 1.0)
    keys = [
        ((inputs - low) / width * KEYS_PER_RANGE).round(),
        lengthscale.float().to(inputs.dtype),
        inputs.float().to(inputs.dtype),
    ]
    if is_theta is not None:
        keys.insert(0, is_theta.to(inputs.dtype).expand(lengthscale.shape))
    key = torch.cat(keys, dim=-2)
    difference = (key.unsqueeze(-1) - key.unsqueeze(-2)).sign()
    first = (difference != 0).to(torch.uint8).argmax(dim=-3, keepdim=True)
    after = difference.take_along_dim(first, dim=-3).squeeze(-3)
    place = torch.arange(inputs.shape[-1], device=inputs.device)
    behind = (after == 0) & (place.unsqueeze(-1) > place)
    return ((after > 0) | behind).sum(dim=-1)


def stretch_frequencies(
    drawn: Sequence[Tensor], smoothness: Sequence[float]
) -> tuple[list[Tensor], Tensor]:
    """Stretch every other frequency, and compute the weights of the features.

    The frequencies of a product of kernels are those of its factors together.

    Args:
        drawn: For each factor ``batch_shape x num_frequencies x d`` frequencies from
            its spectral density.
        smoothness: Matern's ``nu`` of each factor, infinite for the squared
            exponential.

    Returns:
        For each factor ``batch_shape x num_frequencies x d`` angular frequencies in
        units of its lengthscales, and ``batch_shape x num_frequencies`` shares of the
        prior's variance. On average they sum to 1.
    """
    num_frequencies = drawn[0].shape[-2]
    # Successive points of a Sobol sequence lie on opposite sides of the origin, which
    # features do not distinguish. So both halves are spread as evenly as possible.
    stretched = torch.arange(num_frequencies, device=drawn[0].device) % 2 == 1
    frequencies, log_ratio, volume = [], torch.zeros_like(drawn[0][..., 0]), 1.0
    for own, nu in zip(drawn, smoothness, strict=True):
        dim = own.shape[-1]
        heaviness = 1.0 if math.isinf(nu) else 2.0
        stretch = 1.0 + heaviness * math.sqrt(2.0 / dim)
        own = torch.where(stretched.unsqueeze(-1), stretch * own, own)
        square = own.square().sum(dim=-1)
        log_ratio = log_ratio + (
            log_spectral_density(square / stretch**2, nu, dim)
            - log_spectral_density(square, nu, dim)
        )
        volume *= stretch**-dim
        frequencies.append(own)
    # q / p. Of an odd number of frequencies, less than half are stretched.
    share = (num_frequencies // 2) / num_frequencies
    proposal = (1.0 - share) + share * volume * log_ratio.exp()
    return frequencies, 1.0 / (num_frequencies * proposal)


def log_spectral_density(square: Tensor, smoothness: float, dim: int) -> Tensor:
    """Logarithm of the spectral density at unit lengthscale, up to a constant.

    The density is normal for the squared exponential kernel. For a Matern kernel it is
    Student's t with ``2 nu`` degrees of freedom.

    Args:
        square: Squared norms of frequencies.
        smoothness: Matern's ``nu``, infinite for the squared exponential.
        dim: The dimension ``d`` of the frequencies.

    Returns:
        The logarithms, of the same shape.
    """
    if math.isinf(smoothness):
        return -0.5 * square
    degrees = 2.0 * smoothness
    return -0.5 * (degrees + dim) * torch.log1p(square / degrees)
