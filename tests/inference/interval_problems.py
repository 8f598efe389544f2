"""Random problems, and their moments by independent computations."""

import math
from typing import NamedTuple

import mpmath
import numpy as np
import torch
from scipy.special import log_ndtr, ndtr, ndtri
from torch import Tensor

DOUBLE = {"dtype": torch.double}


class Problem(NamedTuple):
    mean: Tensor
    covariance: Tensor
    lower: Tensor
    upper: Tensor


def benign_problem(num: int, n: int, seed: int) -> Problem:
    """Well-conditioned covariances; boxes about a standard deviation wide."""
    generator = torch.Generator().manual_seed(seed)
    root = torch.randn(num, n, n + 2, generator=generator, **DOUBLE)
    covariance = root @ root.mT / (n + 2) + 0.1 * torch.eye(n, **DOUBLE)
    mean = torch.randn(num, n, generator=generator, **DOUBLE)
    deviation = covariance.diagonal(dim1=-1, dim2=-2).sqrt()
    ends = torch.rand(2, num, n, generator=generator, **DOUBLE)
    lower = mean - deviation * (1.5 * ends[0] - 0.2)
    upper = lower + deviation * (0.5 + 2.0 * ends[1])
    kind = torch.rand(num, n, generator=generator, **DOUBLE)
    lower = torch.where(kind < 0.3, -math.inf, lower)
    upper = torch.where(kind > 0.7, math.inf, upper)
    return Problem(mean, covariance, lower, upper)


def truncated_moments(
    mean: float, variance: float, lower: float, upper: float
) -> tuple[float, float]:
    """Moments of a truncated normal variable by the textbook formula."""
    deviation = math.sqrt(variance)
    a, b = (lower - mean) / deviation, (upper - mean) / deviation
    if a + b > 0.0:  # the side on which log_ndtr is accurate
        reflected, shrunk = truncated_moments(-mean, variance, -upper, -lower)
        return -reflected, shrunk
    log_b, log_a = log_ndtr(b), log_ndtr(a)
    log_mass = log_b + np.log1p(-np.exp(log_a - log_b))
    at_a, at_b = (
        np.exp(-0.5 * x * x - 0.5 * math.log(2.0 * math.pi) - log_mass) for x in (a, b)
    )
    first = at_a - at_b
    second = (a * at_a if a > -math.inf else 0.0) - (b * at_b if b < math.inf else 0.0)
    return mean + deviation * first, variance * (1.0 + second - first**2)


def exact_moments(
    mean: float, variance: float, lower: float, upper: float
) -> tuple[float, float]:
    """Moments of a truncated normal variable with 60 digits."""
    with mpmath.workdps(60):
        deviation = mpmath.sqrt(mpmath.mpf(variance))
        a, b = ((mpmath.mpf(x) - mpmath.mpf(mean)) / deviation for x in (lower, upper))
        mass = mpmath.ncdf(b) - mpmath.ncdf(a)
        if a > 0:
            mass = mpmath.ncdf(-a) - mpmath.ncdf(-b)
        at_a, at_b = mpmath.npdf(a) / mass, mpmath.npdf(b) / mass
        second = (a * at_a if lower > -math.inf else 0) - (
            b * at_b if upper < math.inf else 0
        )
        first = at_a - at_b
        return (
            float(mean + deviation * first),
            float(variance * (1 + second - first**2)),
        )


def sequential_ep(
    mean: np.ndarray,
    covariance: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    sweeps: int = 200,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Plain expectation propagation, one site after another, with explicit inverses.

    Returns:
        Mean, covariance, site precisions and site shifts.
    """
    n = len(mean)
    prior = np.linalg.inv(covariance)
    tau, nu = np.zeros(n), np.zeros(n)
    for _ in range(sweeps):
        before = np.concatenate([tau, nu])
        for i in range(n):
            posterior = np.linalg.inv(prior + np.diag(tau))
            m = posterior @ (prior @ mean + nu)
            cavity = 1.0 / posterior[i, i] - tau[i]
            cavity_mean = (m[i] / posterior[i, i] - nu[i]) / cavity
            hat_mean, hat_variance = truncated_moments(
                cavity_mean, 1.0 / cavity, lower[i], upper[i]
            )
            tau[i] = 1.0 / hat_variance - cavity
            nu[i] = hat_mean / hat_variance - cavity_mean * cavity
        if np.abs(np.concatenate([tau, nu]) - before).max() < 1e-12:
            break
    posterior = np.linalg.inv(prior + np.diag(tau))
    return posterior @ (prior @ mean + nu), posterior, tau, nu


def gibbs_chains(
    problem: Problem, chains: int, burnin: int, draws: int, seed: int
) -> np.ndarray:
    """Draw from a truncated normal vector, one coordinate after another.

    Returns:
        ``draws x chains x n`` samples; different chains are independent.
    """
    mean, covariance, lower, upper = (value.numpy() for value in problem)
    generator = np.random.default_rng(seed)
    precision = np.linalg.inv(covariance)
    sigma = 1.0 / np.sqrt(precision.diagonal())
    state = np.tile(np.clip(mean, lower, upper), (chains, 1))
    kept = []
    for sweep in range(burnin + draws):
        for i in range(len(mean)):
            pull = (state - mean) @ precision[i] - precision[i, i] * (
                state[:, i] - mean[i]
            )
            centre = mean[i] - pull * sigma[i] ** 2
            a, b = (lower[i] - centre) / sigma[i], (upper[i] - centre) / sigma[i]
            # On the left of zero, where the distribution function is accurate.
            flip = np.where(a + b > 0.0, -1.0, 1.0)
            a, b = np.where(flip < 0.0, -b, a), np.where(flip < 0.0, -a, b)
            part = generator.random(chains)
            white = ndtri(ndtr(a) + part * (ndtr(b) - ndtr(a)))
            state[:, i] = centre + sigma[i] * flip * white
        if sweep >= burnin:
            kept.append(state.copy())
    return np.stack(kept)


def deviations(covariance: Tensor) -> Tensor:
    """Standard deviations of a covariance matrix."""
    return covariance.diagonal(dim1=-1, dim2=-2).sqrt()


def box_problem(correlation: float) -> Problem:
    """Two standard normal variables in all boxes of a grid with some probability."""
    bounds = [-math.inf, -1.5, -0.5, 0.0, 0.5, 1.5, math.inf]
    boxes = [
        (a, b, c, d)
        for a in bounds
        for b in bounds
        if b - a >= 1.0
        for c in bounds
        for d in bounds
        if d - c >= 1.0
    ]
    edges = torch.tensor(boxes, **DOUBLE)
    lower, upper = edges[:, [0, 2]], edges[:, [1, 3]]
    covariance = torch.tensor([[1.0, correlation], [correlation, 1.0]], **DOUBLE)
    problem = Problem(
        torch.zeros(len(boxes), 2, **DOUBLE),
        covariance.expand(len(boxes), 2, 2),
        lower,
        upper,
    )
    # Benign: the box has some probability.
    draws = torch.randn(
        20000, 1, 2, generator=torch.Generator().manual_seed(0), **DOUBLE
    )
    draws = draws @ torch.linalg.cholesky(covariance).mT
    inside = ((draws >= lower) & (draws <= upper)).all(dim=-1).double().mean(dim=0)
    return Problem(*(value[inside > 0.05] for value in problem))


def quadrature_moments(problem: Problem) -> tuple[Tensor, Tensor]:
    """Moments of a two-dimensional truncated normal on a fine Gauss-Legendre grid."""
    nodes, weights = np.polynomial.legendre.leggauss(100)
    nodes, weights = torch.tensor(nodes), torch.tensor(weights)
    sigma = deviations(problem.covariance)
    lower = torch.maximum(problem.lower, problem.mean - 7.0 * sigma)
    upper = torch.minimum(problem.upper, problem.mean + 7.0 * sigma)
    half = 0.5 * (upper - lower)
    axes = 0.5 * (upper + lower).unsqueeze(-1) + half.unsqueeze(-1) * nodes
    grid = torch.stack(
        torch.broadcast_tensors(axes[..., 0, :, None], axes[..., 1, None, :]), dim=-1
    ).flatten(-3, -2)
    mass = (weights[:, None] * weights).flatten()
    centred = grid - problem.mean.unsqueeze(-2)
    inverse = torch.linalg.inv(problem.covariance)
    exponent = -0.5 * ((centred @ inverse) * centred).sum(dim=-1)
    density = mass * torch.exp(exponent - exponent.amax(dim=-1, keepdim=True))
    density = density / density.sum(dim=-1, keepdim=True)
    mean = (density.unsqueeze(-1) * grid).sum(dim=-2)
    spread = grid - mean.unsqueeze(-2)
    return mean, (density.unsqueeze(-1) * spread).mT @ spread


HARD_KINDS = ("wishart", "kernel", "repeated", "nearly_equal", "mixed_scales")


def hard_problem(kind: str, num: int, n: int, seed: int) -> Problem:
    """Problems that break careless code; every one has a feasible point.

    The feasible point is a draw, stretched by up to 30, and lies on a bound in
    about a third of the coordinates. Intervals are from 1e-8 to 10 standard deviations
    wide, a half of them without a lower and a fifth without an upper bound.

    Args:
        kind: How the covariance is made; one of ``HARD_KINDS``.
        num: Number of batch members.
        n: Number of variables.
        seed: Seed.

    Returns:
        The problem.
    """
    generator = torch.Generator().manual_seed(seed)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, **DOUBLE)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, **DOUBLE)

    identity = torch.eye(n, **DOUBLE)
    if kind in ("wishart", "mixed_scales"):
        rank = max(2, n // 2) + 1
        root = normal(num, n, rank)
        covariance = root @ root.mT / rank + 1e-3 * identity
        if kind == "mixed_scales":
            scale = 10.0 ** (8.0 * uniform(num, n) - 4.0)
            covariance = covariance * scale.unsqueeze(-1) * scale.unsqueeze(-2)
    elif kind == "kernel":
        points = uniform(num, n, 2)
        lengthscale = 10.0 ** (1.6 * uniform(num, 1, 1) - 1.3)
        covariance = torch.exp(-0.5 * (torch.cdist(points, points) / lengthscale) ** 2)
    elif kind == "repeated":
        rank = max(1, n // 4)
        rows = torch.randint(0, rank, (num, n), generator=generator)
        root = normal(num, rank, rank).gather(
            1, rows.unsqueeze(-1).expand(-1, -1, rank)
        )
        covariance = root @ root.mT
    else:
        covariance = torch.full((num, n, n), 1.0 - 1e-12, **DOUBLE) + 1e-12 * identity
    deviation = covariance.diagonal(dim1=-1, dim2=-2).clamp_min(1e-30).sqrt()
    values, vectors = torch.linalg.eigh(covariance)
    distance = 30.0 ** uniform(num, 1)
    white = distance * values.clamp_min(0.0).sqrt() * normal(num, n)
    mean = deviation * normal(num, n)
    inside = mean + (vectors @ white.unsqueeze(-1)).squeeze(-1)
    width = deviation * 10.0 ** (9.0 * uniform(num, n) - 8.0)
    part = uniform(num, n)
    lower = inside - torch.where(uniform(num, n) < 0.3, 0.0, part * width)
    upper = inside + torch.where(uniform(num, n) < 0.3, 0.0, (1.0 - part) * width)
    side = uniform(num, n)
    lower = torch.where((side < 0.5) | (side > 0.95), -math.inf, lower)
    upper = torch.where(side > 0.8, math.inf, upper)
    return Problem(mean, covariance, lower, upper)
