"""Worst cases and robust optima by grids.

Slow and plain: only values of the functions at points, no derivatives, no structure,
and nothing of the searches that they are compared with. With one x and one theta one
table of all pairs is enough; in more dimensions grids are refined again and again.
"""

import itertools
import math

import torch
from torch.nn import functional

from tests.problems import line

# Halves of the local patterns, and how much these shrink, by dimension.
HALVES = {1: 4, 2: 2, 3: 1}
SHRINKAGE = {1: 0.3, 2: 0.6, 3: 0.6}


def pairs(domain, num_x=201, num_theta=201):
    """Each x with each theta, ``n_x x n_theta x d``: all choices, or even grids."""
    x, theta = (
        torch.lerp(*part.bounds, line(n)) if part.choices is None else part.choices
        for part, n in ((domain.x, num_x), (domain.theta, num_theta))
    )
    return domain.join(x.unsqueeze(-2), theta)


def values_at(function, points):
    """A table ``... x n_x x n_theta`` of a function's values."""
    return function(points.flatten(-3, -2)).unflatten(-1, points.shape[-3:-1])


@torch.no_grad()
def mean_at(model, points):
    """A table of BoTorch's posterior mean, or of the average over an ensemble."""
    posterior = model.posterior(points.flatten(0, 1).unsqueeze(-2))
    mean = getattr(posterior, "mixture_mean", posterior.mean)
    return mean.reshape(points.shape[:-1])


def robust_value(table, maximize=False):
    """The best worst case in a table ``... x n_x x n_theta``."""
    return table.amin(-1).amax(-1) if maximize else table.amax(-1).amin(-1)


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


def choose(points, index):
    return points.gather(-2, index[..., None].expand(*index.shape, points.shape[-1]))


def best_of(trial, values):
    """The best of each pattern of ``... x m x d`` points."""
    value, index = values.max(-1, keepdim=True)
    return choose(trial, index).squeeze(-2), value.squeeze(-1)


def local_maxima(values, counts, top):
    """Positions of the best points of a grid that are not below their neighbours."""
    pool = {
        1: functional.max_pool1d,
        2: functional.max_pool2d,
        3: functional.max_pool3d,
    }[len(counts)]
    pooled = pool(values.reshape(-1, 1, *counts), 3, stride=1, padding=1)
    highest = values >= pooled.reshape(values.shape)
    return torch.where(highest, values, -torch.inf).topk(top, dim=-1).indices


class DenseThetas:
    """A dense grid of the free columns of theta in one row of the others.

    If all columns are listed, it is all choices.
    """

    def __init__(self, function, domain, density, limit, row=0):
        self.function, self.domain = function, domain
        self.row = domain.theta.rows[row]
        self.bounds = domain.theta.free_bounds
        self.thetas, self.counts = domain.theta.choices, None
        if self.thetas is None:
            scale = domain.theta.free_of(domain.theta.of(function.lengthscale))
            scale = scale / (self.bounds[1] - self.bounds[0])
            self.counts = grid_counts(scale, density, limit)
            self.grid = unit_grid(self.counts, domain.bounds)
            self.thetas = self.lift(self.grid)
        self.table = function.theta_table(self.thetas, domain)

    def lift(self, unit):
        """The thetas at points of the unit cube."""
        return self.domain.theta.combine(torch.lerp(*self.bounds, unit), self.row)

    def parts(self, x):
        """The values on the grid at parts of ``b x d_x`` or ``C x b x d_x`` points."""
        rows = max(1, 2**22 // (len(self.thetas) * self.function.sample_shape[0]))
        return ((part, self.table(part)) for part in x.split(rows, dim=-2))

    def largest(self, x):
        return torch.cat([values.amax(-1) for _, values in self.parts(x)], -1)

    def refined(self, x, top, zooms, half):
        """Largest values at ``C x b x d_x`` points, local maxima zoomed into."""
        if self.counts is None:
            return self.largest(x)
        return torch.cat(
            [
                self.zoom(part, local_maxima(values, self.counts, top), zooms, half)
                for part, values in self.parts(x)
            ],
            -1,
        )

    def zoom(self, x, index, zooms, half):
        dim, theta = len(self.counts), self.grid[index]
        width = x.new_tensor([1.0 / (n - 1) for n in self.counts])
        local = stencil(half, dim, x)
        for step in range(zooms):
            trial = (theta.unsqueeze(-2) + width * local).clamp(0, 1)
            z = self.domain.join(x[..., None, None, :], self.lift(trial))
            values = self.function(z.flatten(1, -2)).reshape(trial.shape[:-1])
            theta, value = best_of(trial, values)
            width = width * (SHRINKAGE[dim] if half == HALVES[dim] else 0.6)
            if step == 3:
                value, index = value.topk(min(3, value.shape[-1]), dim=-1)
                theta = choose(theta, index)
        return value.amax(-1)


class AllRows:
    """Dense grids in all rows of the listed columns of theta."""

    def __init__(self, function, domain, density, limit):
        # All choices of a finite set are one grid.
        rows = 1 if domain.theta.is_finite else len(domain.theta.rows)
        self.grids = [
            DenseThetas(function, domain, density, limit, row) for row in range(rows)
        ]

    def largest(self, x):
        return torch.stack([grid.largest(x) for grid in self.grids]).amax(0)

    def refined(self, x, top, zooms, half):
        found = [grid.refined(x, top, zooms, half) for grid in self.grids]
        return torch.stack(found).amax(0)


def maximum_over_theta(function, x, domain, limit=20000, top=12):
    """Largest values over theta at ``C x b x d_x`` points."""
    dim = len(domain.theta.free)
    dense = AllRows(function, domain, {0: 1.0, 1: 12.0, 2: 6.0, 3: 4.0}[dim], limit)
    return dense.refined(x, top, zooms=24, half=HALVES.get(dim))


def minimum_over_x(
    function, domain, density=8.0, limit=2000, top=6, rounds=3, zooms=10
):
    """Points of the smallest worst cases, by patterns that shrink around them.

    The settings of free columns are in the unit cube. Returns ``C x m x d_x`` points;
    their worst cases are known to about 1e-5. Rounds use dense grids of thetas alone,
    zooms refine these.
    """
    part, dim = domain.x, len(domain.x.free)
    finest = {0: 1.0, 1: 12.0, 2: 6.0, 3: 4.0}[len(domain.theta.free)]
    dense = AllRows(function, domain, finest, 4000)
    if part.is_finite:
        index = dense.largest(part.rows).topk(min(top, len(part.rows)), largest=False)
        return part.rows[index.indices]
    coarse = AllRows(function, domain, 6.0, 1000)
    counts = grid_counts(part.free_of(part.of(function.lengthscale)), density, limit)
    grid = unit_grid(counts, domain.bounds)
    starts = []
    for row in part.rows:
        points = part.combine(grid, row)
        # If there are not so many local minima, any points make up the number.
        index = local_maxima(-coarse.largest(points), counts, min(3 * top, len(grid)))
        starts.append(points[index])
    x = torch.cat(starts, dim=-2)

    def around(x, pattern):
        free = (part.free_of(x).unsqueeze(-2) + pattern).clamp(0, 1)
        return part.combine(free, part.listed_of(x).unsqueeze(-2))

    x = choose(x, dense.largest(x).topk(top, largest=False).indices)
    width = grid.new_tensor([1.0 / (n - 1) for n in counts])
    generator = torch.Generator().manual_seed(0)
    local = stencil(HALVES[dim], dim, grid)
    for _ in range(rounds):
        trial = around(x, width * local)
        values = dense.largest(trial.flatten(-3, -2)).reshape(trial.shape[:-1])
        x, value = best_of(trial, -values)
        width = width * 0.6
    x = choose(x, value.topk(max(1, top // 2), dim=-1).indices)
    for zoom in range(zooms):
        # Turned, every other time: along a kink few directions lead downwards.
        turn = torch.randn(dim, dim, generator=generator, dtype=grid.dtype)
        pattern = local @ torch.linalg.qr(turn).Q if zoom % 2 else local
        trial = around(x, width * pattern)
        values = dense.refined(trial.flatten(-3, -2), top=3, zooms=8, half=1)
        x, _ = best_of(trial, -values.reshape(trial.shape[:-1]))
        width = width * 0.7
    return x
