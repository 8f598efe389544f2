"""How much information does the point have that the acquisition function chooses?

Run as ``python -m benchmarks.information``. On small grids the information that an
observation gives about the robust optimum ``(x*, theta*, f*)`` can be estimated by
brute force: functions are drawn from the exact joint posterior at all points, and the
entropy of the observation, given the optimum, is that of the draws whose optimum is the
same. The estimate knows nothing of expectation propagation or of Fourier features.

The *efficiency* of an acquisition function is the information at the point where it is
largest, over the largest information at any point.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.models import SingleTaskGP
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from torch import Tensor

from benchmarks.report import RESULTS, Table, run_sections
from botorch_res import RobustDomain, StableOpt, qRobustEntropySearch

NUM_PROBLEMS = 60
NUM_DRAWS = 2**16
NOISE = 1e-2
# Draws of the same optimum are compared in blocks of neighbouring optimal values.
BLOCK = 256
# Fewer draws than this say nothing about an entropy.
SMALLEST_BLOCK = 24
# A spacing of this many order statistics: little bias, and little variance.
SPACING = 4
TITLE = """# Information efficiency

The information at the point where the acquisition function is largest, over the largest
information at any point, on 60 random grids of 5 to 10 times 3 to 6 points, with three
kernels and 3 to 15 observations. The information is estimated by brute force; see
`benchmarks/information.py`.
"""


class Grid(NamedTuple):
    """A problem on a small grid.

    Attributes:
        model: The model, with its data.
        domain: The domain, of which all points are listed.
    """

    model: SingleTaskGP
    domain: RobustDomain


@cache
def make_grid(seed: int) -> Grid:
    """Make a random problem.

    Args:
        seed: Its seed.

    Returns:
        The problem.
    """
    generator = torch.Generator().manual_seed(seed)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.double)

    def between(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=generator))

    n_x, n_theta, t = between(5, 10), between(3, 6), between(3, 15)
    base: Kernel = [
        RBFKernel(ard_num_dims=2),
        MaternKernel(2.5, ard_num_dims=2),
        MaternKernel(1.5, ard_num_dims=2),
    ][seed % 3]
    base.lengthscale = 0.15 + 0.6 * uniform(2)
    kernel = ScaleKernel(base).double()
    kernel.outputscale = 1.0
    domain = RobustDomain(
        torch.tensor([[0.0, 0.0], [1.0, 1.0]]).double(),
        uncontrollable=[1],
        x_choices=uniform(n_x, 1),
        theta_choices=uniform(n_theta, 1),
    )
    pairs = domain.all_pairs().flatten(0, 1)
    X = pairs[torch.randperm(len(pairs), generator=generator)[:t]]
    normal = torch.randn(t, 1, generator=generator, dtype=torch.double)
    with torch.no_grad():
        covariance = kernel(X).to_dense() + NOISE * torch.eye(t, dtype=torch.double)
        Y = torch.linalg.cholesky(covariance) @ normal
    model = SingleTaskGP(
        X,
        Y,
        torch.full_like(Y, NOISE),
        covar_module=kernel,
        outcome_transform=None,
        input_transform=None,
    )
    model.mean_module.initialize(constant=0.0)
    return Grid(model.eval(), domain)


@cache
def true_information(seed: int, num_draws: int = NUM_DRAWS) -> Tensor:
    """Estimate the information at every point of a grid.

    Args:
        seed: The seed of the problem.
        num_draws: The number of functions to draw.

    Returns:
        ``n_x n_theta`` values, in nats.
    """
    model, domain = make_grid(seed)
    points = domain.all_pairs()
    shape = points.shape[:2]
    with torch.no_grad():
        posterior = model.posterior(points.flatten(0, 1)).distribution
        values, vectors = torch.linalg.eigh(posterior.covariance_matrix)
    root = vectors * values.clamp_min(0.0).sqrt()
    generator = torch.Generator().manual_seed(seed)
    normal = torch.empty(num_draws, len(root)).double().normal_(generator=generator)
    f = posterior.mean + normal @ root.mT
    noise = torch.empty_like(f).normal_(generator=generator)
    worst, theta = f.unflatten(-1, shape).max(dim=-1)
    optimal, x = worst.min(dim=-1)
    place = x * shape[1] + theta.gather(-1, x.unsqueeze(-1)).squeeze(-1)
    prior = (posterior.variance + NOISE).log() / 2 + math.log(2 * math.pi * math.e) / 2
    return prior - _conditional_entropy(f + math.sqrt(NOISE) * noise, place, optimal)


def _conditional_entropy(y: Tensor, place: Tensor, optimal: Tensor) -> Tensor:
    """The mean entropy of ``N x n`` values given the place and value of the optimum."""
    total, weight = y.new_zeros(y.shape[-1]), 0
    for group in place.unique():
        chosen = (place == group).nonzero().squeeze(-1)
        chosen = chosen[optimal[chosen].argsort()]
        size = min(BLOCK, len(chosen))
        if size < SMALLEST_BLOCK:
            continue
        count = len(chosen) // size
        blocks = chosen[: count * size].view(count, size)
        entropy = _block_entropy(y[blocks], optimal[blocks]) - _bias(size)
        total += entropy.mean(dim=0) * len(chosen)
        weight += len(chosen)
    return total / weight


def _block_entropy(y: Tensor, optimal: Tensor) -> Tensor:
    """Entropies of ``count x size x n`` values, freed of a trend in ``optimal``."""
    trend = optimal - optimal.mean(dim=-1, keepdim=True)
    trend = (trend / trend.norm(dim=-1, keepdim=True)).unsqueeze(-1)
    residual = y - trend * (trend * y).sum(dim=-2, keepdim=True)
    ordered = residual.sort(dim=-2).values
    size = y.shape[-2]
    gap = ordered[:, SPACING:] - ordered[:, :-SPACING]
    number = y.new_tensor([size + 1.0, float(SPACING)])
    shift = number.digamma()
    return gap.log().mean(dim=-2) + shift[0] - shift[1]


@cache
def _bias(size: int) -> float:
    """The bias of the entropy of a normal variable, from a block of some size."""
    generator = torch.Generator().manual_seed(size)
    y = torch.empty(2000, size, 16).double().normal_(generator=generator)
    optimal = torch.empty(2000, size).double().normal_(generator=generator)
    entropy = _block_entropy(y, optimal.sort(dim=-1).values).mean()
    return float(entropy) - math.log(2 * math.pi * math.e) / 2


def choose_by_information(grid: Grid, **options: object) -> int:
    """The point where the acquisition function is largest.

    Args:
        grid: The problem.
        options: The options of the acquisition function.

    Returns:
        The index of the point.
    """
    acqf = qRobustEntropySearch(
        grid.model, grid.domain, maximize=False, seed=0, **options
    )
    return largest(acqf, grid)


def choose_by_bounds(grid: Grid) -> int:
    """The point that StableOpt chooses.

    Args:
        grid: The problem.

    Returns:
        The index of the point.
    """
    return largest(StableOpt(grid.model, grid.domain, maximize=False), grid)


def largest(acqf: AcquisitionFunction, grid: Grid) -> int:
    """Where an acquisition function is largest."""
    with torch.no_grad():
        values = acqf(grid.domain.all_pairs().flatten(0, 1).unsqueeze(-2))
    return int(values.argmax())


def describe(choose: Callable[[Grid], int]) -> list[str]:
    """The efficiency of a method.

    Args:
        choose: Chooses the index of a point.

    Returns:
        Its mean, its 10 % quantile and its least value.
    """
    shares = []
    for seed in range(NUM_PROBLEMS):
        information = true_information(seed)
        shares.append(float(information[choose(make_grid(seed))] / information.max()))
    tenth = sorted(shares)[math.ceil(0.1 * len(shares)) - 1]
    return [f"{v:.3f}" for v in (statistics.fmean(shares), tenth, min(shares))]


def tabulate() -> Table:
    """The efficiency of targets and numbers of samples.

    Returns:
        The table.
    """
    rows: dict[tuple[object, ...], Callable[[], list[str]]] = {}
    for target in ("optimum", "characteristics"):
        for samples in (1, 4, 16, 64, 256):
            options = {"num_samples": samples, "target": target}
            choose = partial(choose_by_information, **options)
            rows[f"RES, {target}", samples] = partial(describe, choose)
    rows["StableOpt", "-"] = partial(describe, choose_by_bounds)
    return Table(
        intro="Shares of the largest information.",
        keys=["method", "C"],
        heads=["mean", "10 % quantile", "least"],
        rows=rows,
    )


if __name__ == "__main__":
    run_sections({"efficiency": tabulate}, [], RESULTS / "information.md", TITLE)
