"""Pairs of random functions, one a constraint of the other, and their optima by grids.

A rival is a feasible point with a small worst case, found with values alone.
"""

import torch

from botorch_res.sampling.affine import AffineFunction
from tests.brute_force import (
    AllRows,
    best_of,
    choose,
    grid_counts,
    maximum_over_theta,
    stencil,
    unit_grid,
)
from tests.problems import random_samples

DENSITY = {0: 1.0, 1: 12.0, 2: 6.0}


def random_pair(domain, seed, num_samples=8, num_features=64):
    """Functions and constraints; in one of ten no x is feasible."""
    f, _ = random_samples(domain.dim, 2 * seed, None, num_samples, None, num_features)
    g, _ = random_samples(
        domain.dim, 2 * seed + 1, None, num_samples, None, num_features
    )
    generator = torch.Generator().manual_seed(seed)
    x = domain.x.sample(400, seed=seed)
    worst = AllRows(g, domain, 6.0, 1000).largest(x)
    share = 0.02 + 0.6 * torch.rand(num_samples, generator=generator).double()
    level = torch.stack([own.quantile(q) for own, q in zip(worst, share, strict=True)])
    none = torch.rand(num_samples, generator=generator) < 0.1
    level = torch.where(none, worst.amin(-1) - 0.5, level)
    return f, AffineFunction(g, 1.0, -level)


def score(value, violation):
    """Negative values of feasible points; others come last, by their violation."""
    return torch.where(violation <= 0.0, -value, -1e3 - 1e3 * violation)


def rivals(f, c, domain, limit=2000, top=12, zooms=26):
    """Good points ``C x m x d_x`` by patterns that shrink around them."""
    part, dim = domain.x, domain.x.dim
    density = DENSITY[len(domain.theta.free)]
    dense = [AllRows(own, domain, density, 3000) for own in (f, c)]
    scale = torch.minimum(*(part.of(own.lengthscale) for own in (f, c)))
    counts = grid_counts(scale, 16.0 if dim == 1 else 8.0, limit)
    grid = unit_grid(counts, domain.bounds)
    index = score(*(own.largest(grid) for own in dense)).topk(top).indices
    x = grid[index]
    width = grid.new_tensor([1.0 / (n - 1) for n in counts])
    local = stencil({1: 4, 2: 2}[dim], dim, grid)
    generator = torch.Generator().manual_seed(0)
    for zoom in range(zooms):
        turn = torch.randn(dim, dim, generator=generator, dtype=grid.dtype)
        pattern = local @ torch.linalg.qr(turn).Q if zoom % 2 else local
        trial = (x.unsqueeze(-2) + width * pattern).clamp(0, 1)
        flat = trial.flatten(-3, -2)
        if zoom < 10:
            values = [own.largest(flat) for own in dense]
        else:
            values = [own.refined(flat, 3, 8, 1) for own in dense]
        x, value = best_of(trial, score(*values).reshape(trial.shape[:-1]))
        width = width * 0.75
        if zoom == 9:
            x = choose(x, value.topk(3, dim=-1).indices)
    return x


def compare(f, c, domain, found):
    """By how much an optimum is too high, and how much its constraint is violated."""
    x = torch.cat([found.x.unsqueeze(-2), rivals(f, c, domain)], dim=-2)
    value = maximum_over_theta(f, x, domain, limit=2000, top=6)
    violation = maximum_over_theta(c, x, domain, limit=2000, top=6)
    best = torch.where(violation <= 0.0, value, torch.inf).amin(-1)
    least = violation.amin(-1)
    return {
        "is_possible": best.isfinite(),
        "excess": torch.where(best.isfinite(), value[:, 0] - best, 0.0),
        "violation": violation[:, 0],
        "least": least,
        "own_value": value[:, 0],
    }
