r"""One parallel sweep of expectation propagation over interval constraints.

Coordinates are standardised: the variables have mean zero, variance one and the
correlation matrix ``R``. Site ``i`` is ``exp(-t_i z_i^2 / 2 + s_i z_i)``.

*Marginals.* The textbook form [Rasmussen2006gaussian]_, alg. 3.5, factorises
``B = I + T^1/2 R T^1/2``. It gets the posterior variance from a difference,
``1 - a^T a``, and the cavity precision from another, ``1/v - t``. Both lose all digits
for a narrow interval, where ``t v`` is close to one. So a small part ``d`` of the prior
precision moves to the sites: with ``R0 = (R^-1 - d I)^-1`` and ``t' = t + d`` the
posterior is the same and no ``t'`` is zero. With ``C = (I + T'^1/2 R0 T'^1/2)^-1``,
``c = diag(C)`` and ``y = T'^1/2 C T'^-1/2 s``,

    variance          (1 - c) / t'             mean          (s - y) / t'
    cavity precision  (d + t c) / (1 - c)      cavity mean   (s c - y) / (d + t c)

This takes one Cholesky factorisation and one triangular inverse. Nothing cancels:
``1 - c`` is at least of the order of ``d``. ``R`` is never inverted, because
``R0 = R + d R (I - d R)^-1 R`` with ``d`` at most half of ``1 / lambda_max(R)``.

*Constraints.* ``R`` is positive semi-definite only up to rounding, and a narrow
interval needs an enormous precision. The product of the two would break the
factorisation. So the constraint acts on ``z_i + e_i``, with a pseudo-noise ``e_i`` of
tiny variance ``p_i``. This factor is log-concave as well, and its site precision stays
below ``1 / p_i``. Even contradictory constraints then have a fixed point.

References:
.. [Rasmussen2006gaussian]
    C. E. Rasmussen and C. K. I. Williams. Gaussian Processes for Machine Learning.
    MIT Press, 2006.
.. [Minka2001family]
    T. P. Minka. A family of algorithms for approximate Bayesian inference. PhD thesis,
    MIT, 2001.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from botorch_res.probability import truncated_normal_moments


class Sites(NamedTuple):
    """Scalar Gaussian sites.

    Attributes:
        precision: ``batch_shape x n`` precisions ``t >= 0``.
        shift: ``batch_shape x n`` shifts ``s``.
    """

    precision: Tensor
    shift: Tensor


class Marginals(NamedTuple):
    """Posterior and cavity moments of every variable, each ``batch_shape x n``.

    Attributes:
        mean: Posterior means.
        variance: Posterior variances.
        cavity_mean: Means without the variable's own site.
        cavity_precision: Precisions without the variable's own site.
    """

    mean: Tensor
    variance: Tensor
    cavity_mean: Tensor
    cavity_precision: Tensor


class StandardProblem(NamedTuple):
    """A problem in standardised coordinates.

    Attributes:
        widened_correlation: ``batch_shape x n x n`` the matrix ``R0``.
        transferred_precision: ``batch_shape x 1`` the number ``d``.
        lower: ``batch_shape x n`` lower bounds.
        upper: ``batch_shape x n`` upper bounds.
        pseudo_noise: ``batch_shape x n`` the variances ``p``.
    """

    widened_correlation: Tensor
    transferred_precision: Tensor
    lower: Tensor
    upper: Tensor
    pseudo_noise: Tensor


def transfer_precision(correlation: Tensor) -> tuple[Tensor, Tensor]:
    """Choose ``d``, and widen the prior by it.

    Args:
        correlation: ``batch_shape x n x n`` the matrix ``R``.

    Returns:
        ``R0`` and ``d``, the latter of shape ``batch_shape x 1``.
    """
    # The largest row sum of absolute values bounds the largest eigenvalue.
    bound = correlation.abs().sum(dim=-1).amax(dim=-1, keepdim=True)
    transferred = 0.5 / bound
    factor = transferred.unsqueeze(-1)
    cholesky, _ = torch.linalg.cholesky_ex(
        identity_like(correlation) - factor * correlation
    )
    half = torch.linalg.solve_triangular(cholesky, correlation, upper=False)
    return correlation + factor * (half.mT @ half), transferred


def inverse_factor(problem: StandardProblem, sites: Sites) -> tuple[Tensor, Tensor]:
    """Factorise the posterior.

    Args:
        problem: The problem.
        sites: Its sites.

    Returns:
        The inverse ``batch_shape x n x n`` of the Cholesky factor of
        ``I + T'^1/2 R0 T'^1/2``, and the square roots ``batch_shape x n`` of ``t'``.
    """
    root = (sites.precision + problem.transferred_precision).sqrt()
    # In place: passes over memory cost as much as the factorisation.
    matrix = (root.unsqueeze(-1) * problem.widened_correlation).mul_(root.unsqueeze(-2))
    matrix.diagonal(dim1=-1, dim2=-2).add_(1.0)
    cholesky, _ = torch.linalg.cholesky_ex(matrix)
    inverse = torch.linalg.solve_triangular(
        cholesky, identity_like(cholesky).expand_as(cholesky), upper=False
    )
    return inverse, root


def marginals(problem: StandardProblem, sites: Sites) -> Marginals:
    """Compute the posterior and cavity moments.

    Args:
        problem: The problem.
        sites: Its sites.

    Returns:
        The moments of every variable.
    """
    precision, shift = sites
    transferred = problem.transferred_precision
    inverse, root = inverse_factor(problem, sites)
    unexplained = torch.linalg.vector_norm(inverse, dim=-2).square()
    explained = 1.0 - unexplained
    half = inverse @ (shift / root).unsqueeze(-1)
    residual = root * (inverse.mT @ half).squeeze(-1)
    total = precision + transferred
    cavity = transferred + precision * unexplained
    return Marginals(
        mean=(shift - residual) / total,
        variance=explained / total,
        cavity_mean=(shift * unexplained - residual) / cavity,
        cavity_precision=cavity / explained,
    )


def project(
    problem: StandardProblem, cavity_mean: Tensor, cavity_precision: Tensor
) -> tuple[Sites, Tensor]:
    """Match each site to its constraint, given the cavity.

    Args:
        problem: The problem.
        cavity_mean: ``batch_shape x n`` means of the cavities.
        cavity_precision: ``batch_shape x n`` precisions of the cavities.

    Returns:
        The sites that reproduce the moments of the constrained cavities, and the
        ``batch_shape x n`` means of these cavities.
    """
    variance = 1.0 / cavity_precision
    noisy = variance + problem.pseudo_noise
    moments = truncated_normal_moments(
        cavity_mean, noisy, problem.lower, problem.upper, validate_args=False
    )
    gain = moments.mean - cavity_mean
    reduction = (noisy - moments.variance).clamp_min(0.0)
    # Without any bound the site is exactly flat, whatever the rounding.
    flat = problem.lower.isneginf() & problem.upper.isposinf()
    gain = torch.where(flat, 0.0, gain)
    reduction = torch.where(flat, 0.0, reduction)
    # The site of the noisy variable, convolved with the pseudo-noise.
    precision = reduction / (
        noisy * moments.variance + reduction * problem.pseudo_noise
    )
    mean = cavity_mean + gain * variance / noisy
    shift = gain / noisy + mean * precision
    return Sites(precision, shift), mean


def mismatch(posterior: Marginals, sites: Sites, mean: Tensor) -> Tensor:
    """Measure the distance from the fixed point.

    Args:
        posterior: The posterior of the current sites.
        sites: The sites that ``project`` makes from it.
        mean: The means of the constrained cavities, ``batch_shape x n``.

    Returns:
        ``batch_shape x 1`` largest difference between a marginal and its constrained
        cavity: of the means in standard deviations, or of the variances relative to
        the marginal's.
    """
    variance = 1.0 / (posterior.cavity_precision + sites.precision)
    in_mean = (mean - posterior.mean).abs() / posterior.variance.sqrt()
    in_variance = (variance - posterior.variance).abs() / posterior.variance
    return torch.maximum(in_mean, in_variance).amax(dim=-1, keepdim=True)


def moments_with_sites(problem: StandardProblem, sites: Sites) -> tuple[Tensor, Tensor]:
    """Compute the mean and the full covariance of the posterior.

    Args:
        problem: The problem.
        sites: Its sites.

    Returns:
        The mean ``batch_shape x n`` and the covariance ``batch_shape x n x n``.
    """
    inverse, root = inverse_factor(problem, sites)
    explained = identity_like(inverse) - inverse.mT @ inverse
    weighted = (explained @ (sites.shift / root).unsqueeze(-1)).squeeze(-1)
    covariance = explained / (root.unsqueeze(-1) * root.unsqueeze(-2))
    return weighted / root, covariance


def identity_like(matrix: Tensor) -> Tensor:
    """The identity matrix of the size, dtype and device of a square matrix.

    Args:
        matrix: ``batch_shape x n x n`` matrices.

    Returns:
        The ``n x n`` identity.
    """
    return torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
