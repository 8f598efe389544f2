r"""Objectives drawn from the prior that the optimiser's model assumes.

With such a *within-model* objective the model is right by construction, so that a
comparison of strategies is not one of model fits. Both variables are continuous.
"""

from __future__ import annotations

from functools import cached_property

import torch
from botorch.exceptions.errors import InputDataError
from torch import Tensor

from botorch_res.test_functions.base import RobustTestProblem

# The worst case of an x: a grid with this many thetas for each lengthscale, fine enough
# that Newton's method converges from its local maxima, and as many of the best of them
# refined, because one may overtake another.
GRID_DENSITY = 20
BASINS = 3
NEWTON_STEPS = 5
# The robust optimum: a grid over x, cells around the best local minima, and how often
# these shrink to a tenth.
OPTIMUM_GRID = 2001
CELLS = 12
SHRINKS = 12
# The most points that are evaluated at once, to bound the memory.
CHUNK = 1024


class WithinModel(RobustTestProblem):
    r"""The posterior mean of a GP given values drawn from its own prior.

    The GP has zero mean, an RBF kernel with unit signal variance, and Gaussian
    observation noise. Its observations, signal and noise, are one draw of its prior
    at uniformly random points of the unit square, on which ``x`` and ``theta`` live.

    Every ``seed`` is another objective. Each finds its robust optimum when it is first
    asked for: a dense grid over ``x``, a grid and Newton's method for the worst case of
    every ``x``, and a search that shrinks around the best ``x``.
    """

    dim = 2
    _points: Tensor
    _weights: Tensor
    _bounds = ((0.0, 1.0), (0.0, 1.0))
    _uncontrollable = (1,)

    def __init__(
        self,
        seed: int = 0,
        num_points: int = 1000,
        lengthscale: float = 0.1,
        noise_variance: float = 1e-3,
        noise_std: float | None = None,
        negate: bool = False,
        dtype: torch.dtype = torch.double,
    ) -> None:
        r"""Draw an objective.

        Args:
            seed: The seed of the points and of their values.
            num_points: The number of points.
            lengthscale: The lengthscale of the kernel in both variables.
            noise_variance: The variance of the GP's observation noise, which shapes
                the objective; it adds no noise to an evaluation.
            noise_std: The standard deviation of the noise of an evaluation.
            negate: Whether to negate the function.
            dtype: The dtype of the bounds and of the points.
        """
        for name, value in (
            ("num_points", num_points),
            ("lengthscale", lengthscale),
            ("noise_variance", noise_variance),
        ):
            if not value > 0:
                raise InputDataError(f"Expected `{name}` to be positive, got {value}.")
        super().__init__(noise_std=noise_std, negate=negate, dtype=dtype)
        self.lengthscale = lengthscale
        generator = torch.Generator().manual_seed(seed)
        points = torch.rand(num_points, 2, generator=generator, dtype=torch.double)
        normals = torch.randn(num_points, 1, generator=generator, dtype=torch.double)
        scaled = points / lengthscale
        covariance = torch.cdist(scaled, scaled).square().div(-2).exp()
        covariance.diagonal().add_(noise_variance)
        # The values are L e with L L^T = K + s2 I, so the weights are L^-T e.
        factor = torch.linalg.cholesky(covariance)
        weights = torch.linalg.solve_triangular(factor.mT, normals, upper=True)[:, 0]
        self.register_buffer("_points", points.to(dtype))
        self.register_buffer("_weights", weights.to(dtype))
        # No buffers: the optimum is that of the objective in double precision.
        self._in_double_precision = points, weights, lengthscale

    def _evaluate_true(self, X: Tensor) -> Tensor:
        values = []
        for part in X.reshape(-1, 2).split(CHUNK):
            distance = (part.unsqueeze(-2) - self._points).square().sum(dim=-1)
            kernel = distance.div(-2 * self.lengthscale**2).exp()
            values.append(kernel @ self._weights)
        return torch.cat(values).reshape(X.shape[:-1])

    @torch.no_grad()
    def _worst_thetas(self, x: Tensor) -> Tensor:
        theta, _ = _worst_case(x, self._points, self._weights, self.lengthscale)
        return theta.unsqueeze(-2)

    @cached_property
    def _optimum(self) -> tuple[tuple[float, float], float]:
        """The robust optimizer and the robust optimal value before ``negate``."""
        x = torch.linspace(0, 1, OPTIMUM_GRID, dtype=torch.double).unsqueeze(-1)
        _, values = _worst_case(x, *self._in_double_precision)
        centre = x[_local_maxima(-values.squeeze(-1), CELLS)]
        # The grid's minimum may lie a little off the function's.
        radius = 10 / (len(x) - 1)
        steps = torch.linspace(-1, 1, 21, dtype=torch.double)
        for _ in range(SHRINKS):
            cells = (centre + radius * steps).clamp(0, 1).unsqueeze(-1)
            _, values = _worst_case(cells, *self._in_double_precision)
            lowest = values.argmin(dim=-2, keepdim=True)
            centre = cells.gather(-2, lowest).squeeze(-2)
            radius /= 10
        theta, values = _worst_case(centre, *self._in_double_precision)
        best = values.argmin()
        return (float(centre[best]), float(theta[best])), float(values[best])

    @property
    def _robust_optimizer(self) -> tuple[float, float]:  # type: ignore[override]
        return self._optimum[0]

    @property
    def _robust_optimal_value(self) -> float:  # type: ignore[override]
        return self._optimum[1]


def _local_maxima(values: Tensor, num: int) -> Tensor:
    """The indices of the highest local maxima, filled up with others, of each row."""
    padded = torch.nn.functional.pad(values, (1, 1), value=-torch.inf)
    is_peak = (values >= padded[..., :-2]) & (values >= padded[..., 2:])
    peaks = values.masked_fill(~is_peak, -torch.inf)
    return peaks.topk(min(num, values.shape[-1])).indices


def _kernel(inputs: Tensor, centres: Tensor, lengthscale: float) -> Tensor:
    """One variable's factor of the RBF kernel: ``batch_shape x 1`` by ``n`` inputs."""
    return ((inputs - centres) / lengthscale).square().div(-2).exp()


def _worst_case(
    x: Tensor, points: Tensor, weights: Tensor, lengthscale: float
) -> tuple[Tensor, Tensor]:
    """The ``batch_shape x 1`` worst thetas, and values, of ``batch_shape x 1`` x."""
    along_x, along_theta = points.unbind(-1)
    num = round(GRID_DENSITY / lengthscale) + 1
    grid = torch.linspace(0, 1, num, dtype=x.dtype, device=x.device)
    radius = 1 / (num - 1)
    on_grid = _kernel(grid.unsqueeze(-1), along_theta, lengthscale).mT
    powers = torch.stack([along_theta**power for power in range(3)], dim=-1)
    found = []
    for part in x.reshape(-1, 1).split(CHUNK):
        in_x = _kernel(part, along_x, lengthscale) * weights
        theta = grid[_local_maxima(in_x @ on_grid, BASINS)].unsqueeze(-1)
        lower, upper = (theta - radius).clamp_min(0), (theta + radius).clamp_max(1)
        visited = []
        for _ in range(NEWTON_STEPS + 1):
            terms = _kernel(theta, along_theta, lengthscale) * in_x.unsqueeze(-2)
            value, first, second = (terms @ powers).split(1, dim=-1)
            visited.append(torch.cat([theta, value], dim=-1))
            # The first two derivatives, times the squared lengthscale.
            slope = first - theta * value
            bend = (second - theta * (first + slope)) / lengthscale**2 - value
            # Where the function is not concave, go uphill to the end of the cell.
            step = torch.where(bend < 0, -slope / bend, slope.sign() * radius)
            theta = torch.clamp(theta + step, lower, upper)
        reached = torch.cat(visited, dim=-2)
        highest = reached[..., 1:].argmax(dim=-2, keepdim=True)
        found.append(reached.gather(-2, highest.expand(-1, -1, 2)))
    theta, value = torch.cat(found).reshape(*x.shape[:-1], 2).split(1, dim=-1)
    return theta, value
