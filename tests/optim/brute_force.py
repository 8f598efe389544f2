"""Worst cases and robust optima by grids that are refined again and again.

Slow and plain: only values of the functions at points, no derivatives, no structure.
"""

import itertools
import math

import torch

from botorch_res.optim import WorstCaseSolver


def unit_grid(counts, like):
    axes = [torch.linspace(0, 1, n, dtype=like.dtype) for n in counts]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).flatten(0, -2)


def stencil(half, dim, like):
    steps = [i / half for i in range(-half, half + 1)]
    return like.new_tensor(list(itertools.product(steps, repeat=dim)))


def grid_counts(lengthscale, density, limit):
    least = {1: 33, 2: 9, 3: 7}[len(lengthscale)]
    counts = [max(least, math.ceil(density / s)) for s in lengthscale.tolist()]
    factor = max(1.0, math.prod(counts) / limit) ** (1 / len(counts))
    return [max(least, math.ceil(n / factor)) for n in counts]


def maximum_over_theta(function, x, domain, limit=20000, top=12):
    """Largest values at ``C x b x d_x`` points of a domain on the unit cube."""
    dim = domain.theta_dim
    density = {1: 12.0, 2: 6.0, 3: 4.0}[dim]
    scale = function.lengthscale[list(domain.uncontrollable)]
    counts = grid_counts(scale, density, limit)
    grid = unit_grid(counts, x)
    table = function.theta_table(grid, domain)
    theta, value = [], []
    for part in x.split(max(1, 2**23 // (len(grid) * x.shape[0])), dim=-2):
        best, index = table(part).topk(top, dim=-1)
        theta.append(grid[index])
        value.append(best)
    theta, value = torch.cat(theta, -3), torch.cat(value, -2)
    width = x.new_tensor([1.0 / (n - 1) for n in counts])
    local = stencil({1: 4, 2: 2, 3: 1}[dim], dim, x)
    for zoom in range(24):
        trial = (theta.unsqueeze(-2) + width * local).clamp(0, 1)
        z = domain.join(x[..., None, None, :], trial)
        values = function(z.flatten(1, -2)).reshape(trial.shape[:-1])
        value, index = values.max(-1)
        theta = trial.gather(
            -2, index[..., None, None].expand(*index.shape, 1, dim)
        ).squeeze(-2)
        width = width * {1: 0.3, 2: 0.6, 3: 0.6}[dim]
        if zoom == 3:
            value, index = value.topk(2, dim=-1)
            theta = theta.gather(-2, index[..., None].expand(*index.shape, dim))
    return value.amax(-1)


def minimum_over_x(function, domain, density=8.0, limit=1500, top=6, effort=1.5):
    """Smallest worst cases, by patterns that shrink around the best ``x``."""
    solver = WorstCaseSolver(function, domain, effort)
    dim = domain.x_dim
    scale = function.lengthscale[list(domain.controllable)]
    counts = grid_counts(scale, density, limit)
    grid = unit_grid(counts, domain.bounds)
    with torch.no_grad():
        value, index = solver.bound(grid).topk(3 * top, largest=False)
        x = grid[index]
        value, index = solver(x).value.topk(top, largest=False)
        x = x.gather(-2, index[..., None].expand(*index.shape, dim))
        width = grid.new_tensor([1.0 / (n - 1) for n in counts])
        local = stencil({1: 4, 2: 2, 3: 1}[dim], dim, grid)
        for zoom in range(11):
            trial = (x.unsqueeze(-2) + width * local).clamp(0, 1)
            values = solver(trial.flatten(-3, -2)).value.reshape(trial.shape[:-1])
            value, index = values.min(-1)
            x = trial.gather(
                -2, index[..., None, None].expand(*index.shape, 1, dim)
            ).squeeze(-2)
            width = width * 0.6
            if zoom == 4:
                value, index = value.topk(2, dim=-1, largest=False)
                x = x.gather(-2, index[..., None].expand(*index.shape, dim))
    return x, value
