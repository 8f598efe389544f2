r"""Expectation propagation for a Gaussian vector with interval constraints.

This approximates ``z ~ N(mean, covariance)`` given ``lower_i <= z_i <= upper_i`` for
all ``i`` by a Gaussian. Every constraint is replaced by a scalar Gaussian site
``exp(-tau_i z_i^2 / 2 + nu_i z_i)``. Interval indicators are log-concave, so the site
precisions ``tau_i`` never become negative, and every sweep is well defined.

All sites of all batch members are updated in parallel, with damping: see
``botorch_res.inference.iteration``. The algebra of a sweep, and references, are in
``botorch_res.inference.sweep``.
"""

from __future__ import annotations

import math
import warnings
from typing import NamedTuple

import torch
from botorch.exceptions.errors import BotorchTensorDimensionError, InputDataError
from botorch.exceptions.warnings import NumericsWarning
from torch import Tensor

from botorch_res.checks import check_bounds, check_finite, check_number, require
from botorch_res.inference.iteration import iterate
from botorch_res.inference.sweep import (
    StandardProblem,
    identity_like,
    moments_with_sites,
    transfer_precision,
)

DEFAULT_TOLERANCE = 1e-6
# Negative variances of this size, relative to the largest one, count as rounding: some
# ten times the unit of single precision. A safe choice.
NEGLIGIBLE_VARIANCE = 1e-6
# Larger than any rounding. This finds users who pass a Cholesky factor by mistake.
ASYMMETRY = 0.1
# Errors of n x n factorisations, in rounding units of the largest eigenvalue. A safe
# choice: the textbook bound grows with n, but actual errors are far smaller.
ROUNDING_UNITS = 64.0
# A negative eigenvalue of the posterior covariance needs no repair if it is this small,
# relative to the largest variance. A safe choice: no use of the covariance notices it.
NEGLIGIBLE_EIGENVALUE = 1e-11


class EPResult(NamedTuple):
    """Result of expectation propagation.

    Attributes:
        mean: ``batch_shape x n`` approximate posterior means.
        covariance: ``batch_shape x n x n`` approximate posterior covariances.
        site_precision: ``batch_shape x n`` precisions ``tau >= 0`` of the sites.
        site_shift: ``batch_shape x n`` shifts ``nu`` of the sites.
        num_sweeps: ``batch_shape`` numbers of sweeps.
        converged: ``batch_shape`` booleans: which members converged.
        mismatch: ``batch_shape`` largest differences between a marginal and the moments
            of its constrained cavity in the last sweep: of means in standard
            deviations, of variances relative to the marginal's.
    """

    mean: Tensor
    covariance: Tensor
    site_precision: Tensor
    site_shift: Tensor
    num_sweeps: Tensor
    converged: Tensor
    mismatch: Tensor


def expectation_propagation(
    mean: Tensor,
    covariance: Tensor,
    lower: Tensor,
    upper: Tensor,
    pseudo_noise: Tensor | float = 0.0,
    max_sweeps: int = 200,
    tolerance: float = DEFAULT_TOLERANCE,
    validate_args: bool = True,
) -> EPResult:
    """Condition a Gaussian vector on interval constraints.

    Singular covariances (coinciding variables), infinite bounds, and narrow or remote
    intervals are allowed. If a covariance is indefinite, its correlations are shrunk
    until it is positive semi-definite. A warning follows if ``pseudo_noise`` and
    rounding do not explain the amount. The result has no gradients.

    The arithmetic is in double precision whatever the dtype of the arguments. A
    single-precision covariance is trusted only up to its own rounding.

    The host waits for the device to check the arguments (if asked to), to check that
    the covariance is positive semi-definite, to see every few sweeps which members have
    converged, and to warn about those that have not.

    Args:
        mean: ``batch_shape x n`` means.
        covariance: ``batch_shape x n x n`` covariances, positive semi-definite up to
            rounding.
        lower: ``batch_shape x n`` lower bounds, possibly ``-inf``.
        upper: ``batch_shape x n`` upper bounds, possibly ``inf``.
        pseudo_noise: Constraints are softened by at least this variance,
            ``batch_shape x n`` or a number. Give the absolute error of ``covariance``:
            1e-8 of the prior variance for a GP posterior. The function itself adds what
            the conditioning of ``covariance`` needs: between 1e-14 and 1e-8 of the
            variance in double precision, and more if ``covariance`` is indefinite.
        max_sweeps: The largest number of sweeps.
        tolerance: A member has converged when its mismatch is at most this; see
            ``EPResult``.
        validate_args: Check the values of the arguments.

    Returns:
        Moments, sites and diagnostics.

    Raises:
        BotorchTensorDimensionError: If the shapes do not fit.
        InputDataError: If a moment has no floating-point dtype, or the covariance is
            far from positive semi-definite. If ``validate_args`` is set, also if an
            argument is NaN, a moment is infinite, a variance is negative beyond
            rounding, a bound is infinite on the wrong side, a lower bound exceeds its
            upper bound, the covariance is far from symmetric, or a pseudo-noise is
            negative or infinite.

    Example:
        >>> covariance = torch.tensor([[1.0, 0.5], [0.5, 1.0]], dtype=torch.double)
        >>> zero = torch.zeros(2, dtype=torch.double)
        >>> result = expectation_propagation(zero, covariance, zero, zero + torch.inf)
        >>> result.mean, result.covariance, result.converged
    """
    noise = (
        pseudo_noise
        if isinstance(pseudo_noise, Tensor)
        else torch.full_like(mean, pseudo_noise)
    )
    _check_shapes(mean, covariance, lower, upper, noise)
    check_number("max_sweeps", max_sweeps, 1)
    if validate_args:
        _check_values(mean, covariance, lower, upper, noise)
    dtype, epsilon = mean.dtype, torch.finfo(covariance.dtype).eps
    mean, covariance, lower, upper, noise = (
        argument.detach().double()
        for argument in (mean, covariance, lower, upper, noise)
    )
    covariance = 0.5 * (covariance + covariance.mT)
    scale = _scale(covariance, noise)
    problem = _standardise(mean, covariance, lower, upper, scale, noise, epsilon)

    sites, num_sweeps, distance = iterate(problem, max_sweeps, tolerance)
    converged = distance <= tolerance
    _warn_unless_converged(converged, distance, max_sweeps, tolerance)
    standard_mean, standard_covariance = moments_with_sites(problem, sites)
    posterior = scale.unsqueeze(-1) * standard_covariance * scale.unsqueeze(-2)
    repair = _rounding_repair(problem, posterior, scale)
    precision = sites.precision / scale.square()
    return EPResult(
        mean=(mean + scale * standard_mean).to(dtype),
        covariance=(posterior + repair).to(dtype),
        site_precision=precision.to(dtype),
        site_shift=(sites.shift / scale + precision * mean).to(dtype),
        num_sweeps=num_sweeps,
        converged=converged,
        mismatch=distance.to(dtype),
    )


def _check_shapes(
    mean: Tensor, covariance: Tensor, lower: Tensor, upper: Tensor, pseudo_noise: Tensor
) -> None:
    """Raise an error unless shapes and dtypes fit."""
    shape = tuple(mean.shape)
    if mean.ndim == 0 or shape[-1] == 0:
        raise BotorchTensorDimensionError(
            f"Expected `mean` to have the shape `batch_shape x n`, got {shape}."
        )
    for name, value, expected in (
        ("covariance", covariance, (*shape, shape[-1])),
        ("lower", lower, shape),
        ("upper", upper, shape),
        ("pseudo_noise", pseudo_noise, shape if pseudo_noise.ndim > 0 else ()),
    ):
        if value.shape != expected:
            raise BotorchTensorDimensionError(
                f"Expected `{name}` to have the shape {expected} for a `mean` of shape "
                f"{shape}, got {tuple(value.shape)}."
            )
    for name, value in (("mean", mean), ("covariance", covariance)):
        if not value.is_floating_point():
            raise InputDataError(
                f"Expected `{name}` to have a floating-point dtype, got {value.dtype}."
            )


def _check_values(
    mean: Tensor, covariance: Tensor, lower: Tensor, upper: Tensor, pseudo_noise: Tensor
) -> None:
    """Raise an error unless the values make sense."""
    check_finite(mean=mean, covariance=covariance, pseudo_noise=pseudo_noise)
    require(lower < torch.inf, "`lower` to be less than infinity", lower)
    require(upper > -torch.inf, "`upper` to be greater than minus infinity", upper)
    check_bounds(lower, upper)
    require(pseudo_noise >= 0.0, "`pseudo_noise` to be at least 0", pseudo_noise)
    variances = covariance.diagonal(dim1=-1, dim2=-2)
    largest = variances.amax(dim=-1, keepdim=True)
    require(
        variances >= -NEGLIGIBLE_VARIANCE * largest,
        "the diagonal of `covariance` to be at least 0",
        variances,
    )
    require(
        (covariance - covariance.mT).abs() <= ASYMMETRY * largest.unsqueeze(-1),
        "`covariance` to be symmetric",
        covariance,
        covariance.mT,
    )


def _scale(covariance: Tensor, pseudo_noise: Tensor) -> Tensor:
    """Take standard deviations, positive even for variables without a variance."""
    variance = covariance.diagonal(dim1=-1, dim2=-2)
    floor = 1e-30 * variance.amax(dim=-1, keepdim=True) + 1e-200
    return torch.maximum(variance, torch.maximum(floor, pseudo_noise)).sqrt()


def _standardise(
    mean: Tensor,
    covariance: Tensor,
    lower: Tensor,
    upper: Tensor,
    scale: Tensor,
    pseudo_noise: Tensor,
    epsilon: float,
) -> StandardProblem:
    """Change to variables of mean zero and variance one."""
    correlation = covariance / (scale.unsqueeze(-1) * scale.unsqueeze(-2))
    diagonal = correlation.diagonal(dim1=-1, dim2=-2)
    correlation = correlation + torch.diag_embed(1.0 - diagonal)
    noise = pseudo_noise / scale.square()
    error = noise.amax(dim=-1).clamp_min(math.sqrt(epsilon))
    correlation, jitter = _make_semidefinite(correlation, error)
    widened, transferred = transfer_precision(correlation)
    needed = torch.maximum(_needed_pseudo_noise(correlation, epsilon), jitter)
    return StandardProblem(
        widened_correlation=widened,
        transferred_precision=transferred,
        lower=(lower - mean) / scale,
        upper=(upper - mean) / scale,
        pseudo_noise=torch.maximum(needed, noise),
    )


def _make_semidefinite(correlation: Tensor, error: Tensor) -> tuple[Tensor, Tensor]:
    """Shrink correlations until they are positive semi-definite; return the jitter."""
    # A negative eigenvalue beyond rounding becomes a negative posterior variance once a
    # site precision reaches its inverse. A jitter above ``error``, the known error of
    # each member, gives a warning.
    identity = identity_like(correlation)
    # Below this, a negative eigenvalue is rounding in double precision. The largest row
    # sum of absolute values bounds the largest eigenvalue.
    bound = correlation.abs().sum(dim=-1).amax(dim=-1)[..., None, None]
    least = ROUNDING_UNITS * torch.finfo(correlation.dtype).eps * bound
    jitter = torch.zeros_like(least)
    _, failed = torch.linalg.cholesky_ex(correlation + least * identity)
    while failed.any():
        larger = 10.0 * torch.maximum(jitter, least)
        jitter = torch.where(failed[..., None, None] > 0, larger, jitter)
        if (jitter > 1.0).any():
            smallest = torch.linalg.eigvalsh(correlation).min()
            raise InputDataError(
                "Expected `covariance` to be positive semi-definite, got a correlation "
                f"matrix with the eigenvalue {float(smallest):.3g}."
            )
        _, failed = torch.linalg.cholesky_ex(
            correlation + torch.maximum(jitter, least) * identity
        )
    repaired = jitter > error[..., None, None]
    if repaired.any():
        warnings.warn(
            f"{int(repaired.sum())} of {repaired.numel()} covariances are not "
            "positive semi-definite up to rounding; their correlations are shrunk and "
            "their constraints softened by a pseudo-noise of up to "
            f"{float(jitter.max()):.1e} of the variance.",
            NumericsWarning,
            stacklevel=4,
        )
    return (correlation + jitter * identity) / (1.0 + jitter), jitter.squeeze(-1)


def _needed_pseudo_noise(correlation: Tensor, epsilon: float) -> Tensor:
    """Find the ``batch_shape x 1`` pseudo-noise that makes up for rounding."""
    # The inverse of the correlation matrix magnifies errors of size epsilon. Its norm
    # is its largest diagonal entry within a factor of n, whatever the order of the
    # variables. (That entry is one over the smallest variance of a variable given all
    # others.) The pivots do not tell: all of them may be far from zero.
    identity, largest = identity_like(correlation), math.sqrt(epsilon)
    cholesky, _ = torch.linalg.cholesky_ex(correlation + largest * identity)
    inverse = torch.linalg.solve_triangular(
        cholesky, identity.expand_as(cholesky), upper=False
    )
    magnified = inverse.square().sum(dim=-2).amax(dim=-1, keepdim=True)
    needed: Tensor = (ROUNDING_UNITS * epsilon * magnified).clamp_max(largest)
    return needed


def _rounding_repair(
    problem: StandardProblem, covariance: Tensor, scale: Tensor
) -> Tensor:
    """Make a diagonal that makes up for the rounding of the prior, where needed."""
    # When all variables are tightly constrained, the posterior covariance can be
    # smaller than the rounding of the prior and have a negative eigenvalue of that
    # size. Only members with such an eigenvalue are repaired.
    largest = covariance.diagonal(dim1=-1, dim2=-2).amax(dim=-1, keepdim=True)
    shift = torch.diag_embed((NEGLIGIBLE_EIGENVALUE * largest).expand_as(scale))
    _, failed = torch.linalg.cholesky_ex(covariance + shift)
    # The largest eigenvalue of the correlation matrix is at most half of this inverse.
    units = ROUNDING_UNITS * torch.finfo(scale.dtype).eps
    rounding = units / problem.transferred_precision
    repair = torch.where(failed.unsqueeze(-1) > 0, rounding * scale.square(), 0.0)
    return torch.diag_embed(repair)


def _warn_unless_converged(
    converged: Tensor, distance: Tensor, max_sweeps: int, tolerance: float
) -> None:
    """Warn about members that have not converged."""
    missed = int((~converged).sum())
    if missed:
        warnings.warn(
            f"Expectation propagation has not converged after {max_sweeps} sweeps in "
            f"{missed} of {converged.numel()} members: the largest mismatch is "
            f"{float(distance.max()):.1e}, the tolerance {tolerance:.1e}.",
            NumericsWarning,
            stacklevel=3,
        )
