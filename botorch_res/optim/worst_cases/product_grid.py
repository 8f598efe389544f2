r"""A product grid, and the local maxima of values on it.

This is the first stage of the global search for a worst case. The grid is as fine as
the lengthscale of the functions requires. Each local maximum among the values is
improved by the quadratic that interpolates its neighbours.
"""

from __future__ import annotations

import math
from functools import reduce

import torch
from torch import Tensor

from botorch_res.optim.worst_cases.newton import box_newton_step, dot, multiply

# Points along each axis, by dimension, if the lengthscale is unknown. In higher
# dimensions there are five. A safe choice, at most a few thousand points in total for
# up to five dimensions.
DEFAULT_COUNTS = {1: 65, 2: 25, 3: 11, 4: 7}


def grid_counts(
    lengthscale: Tensor | None, width: Tensor, density: float, max_points: int
) -> list[int]:
    """Choose the number of grid points along each axis.

    Args:
        lengthscale: ``d`` distances over which the functions change, if known.
        width: ``d`` widths of the box.
        density: The number of grid points per lengthscale.
        max_points: The largest number of points in total.

    Returns:
        ``d`` numbers, each at least three.
    """
    dim = len(width)
    if lengthscale is None:
        wanted = [float(DEFAULT_COUNTS.get(dim, 5))] * dim
    else:
        wanted = [1.0 + density * ratio for ratio in (width / lengthscale).tolist()]
    wanted = [max(5.0, count) for count in wanted]
    # Too many: make all axes coarser by the same factor, but keep three points.
    excess = math.prod(wanted) / max_points
    if excess > 1.0:
        wanted = [max(3.0, count * excess ** (-1.0 / dim)) for count in wanted]
        return [math.floor(count) for count in wanted]
    return [math.ceil(count) for count in wanted]


class ProductGrid:
    """A product grid of the unit cube with ``M`` points.

    Attributes:
        points: ``M x d`` points, including the margin.
        spacing: ``d`` distances between neighbours.
    """

    def __init__(self, counts: list[int], like: Tensor, margin: int = 0) -> None:
        """Make the grid.

        Args:
            counts: The number of points along each axis, each at least three.
            like: A tensor of the dtype and device to use.
            margin: The number of points beyond each end of each axis.
        """
        axes = [
            torch.arange(-margin, n + margin, dtype=like.dtype, device=like.device)
            / (n - 1)
            for n in counts
        ]
        mesh = torch.meshgrid(*axes, indexing="ij")
        self.counts, self.margin = counts, margin
        self.points = torch.stack(mesh, dim=-1).flatten(0, -2)
        self.spacing = like.new_tensor([1.0 / (n - 1) for n in counts])
        strides = [math.prod(counts[i + 1 :]) for i in range(len(counts))]
        self._strides = torch.tensor(strides, device=like.device)
        self._counts = torch.tensor(counts, device=like.device)
        one_axis = [torch.tensor([-s, 0, s], device=like.device) for s in strides]
        # Offsets of the 3^d neighbours, and the weights of finite differences.
        self._offsets = reduce(lambda a, b: (a.unsqueeze(-1) + b).flatten(), one_axis)
        self._differences = _difference_table(len(counts), like)

    def inside(self, values: Tensor) -> Tensor:
        """Leave the margin out.

        Args:
            values: Values at all points, along the last dimension.

        Returns:
            ``... x M`` values in the cube.
        """
        if self.margin == 0:
            return values
        values = values.unflatten(-1, [n + 2 * self.margin for n in self.counts])
        for axis, n in enumerate(self.counts, start=-len(self.counts)):
            values = values.narrow(axis, self.margin, n)
        return values.flatten(-len(self.counts))

    def peaks(self, values: Tensor, num_peaks: int) -> tuple[Tensor, Tensor]:
        """Find the best local maxima of values on the grid.

        Args:
            values: ``... x M`` values.
            num_peaks: The number ``k`` of maxima to return.

        Returns:
            The ``... x k x d`` maxima of the local quadratics, the highest first, and
            their ``... x k`` predicted values. If there are fewer than ``k``, the rest
            are arbitrary grid points with values of minus infinity.
        """
        height, index = self._local_maxima(values, num_peaks)
        corner = (index.unsqueeze(-1) // self._strides) % self._counts
        # A point at the edge of the grid uses the stencil of its neighbour inside.
        position = torch.minimum(corner.clamp_min(1), self._counts - 2)
        center = (position * self._strides).sum(dim=-1, keepdim=True)
        stencil = (center + self._offsets).flatten(-2)
        around = values.gather(-1, stencil).unflatten(-1, (index.shape[-1], -1))
        dim = len(self.counts)
        _, gradient, hessian = (around @ self._differences).split(
            [1, dim, dim * dim], dim=-1
        )
        hessian = hessian.unflatten(-1, (dim, dim))
        offset = (corner - position).to(values.dtype)
        gradient = gradient + multiply(hessian, offset)
        step = box_newton_step(gradient, hessian, -1.0 - offset, 1.0 - offset)
        gain = dot(step, gradient + 0.5 * multiply(hessian, step))
        value = height + gain
        theta = (corner + step) * self.spacing
        best, order = value.topk(index.shape[-1], dim=-1)
        order = order.unsqueeze(-1).expand(theta.shape)
        return theta.gather(-2, order), best

    def _local_maxima(self, values: Tensor, num_peaks: int) -> tuple[Tensor, Tensor]:
        """Find values and indices of the best points that no neighbour exceeds."""
        pooled = values.unflatten(-1, self.counts)
        for axis in range(-len(self.counts), 0):
            n = pooled.shape[axis]
            left, right = pooled.narrow(axis, 0, n - 1), pooled.narrow(axis, 1, n - 1)
            pairs = torch.maximum(left, right)
            first, last = pairs.narrow(axis, 0, 1), pairs.narrow(axis, n - 2, 1)
            inner = torch.maximum(
                pairs.narrow(axis, 0, n - 2), pairs.narrow(axis, 1, n - 2)
            )
            pooled = torch.cat([first, inner, last], dim=axis)
        maximal = values >= pooled.flatten(-len(self.counts))
        score = torch.where(maximal, values, -torch.inf)
        height, index = score.topk(min(num_peaks, values.shape[-1]), dim=-1)
        return height, index


def _difference_table(dim: int, like: Tensor) -> Tensor:
    """Make the ``3^d x (1 + d + d^2)`` table of weights of central differences."""
    stencils = like.new_tensor([[0.0, 1.0, 0.0], [-0.5, 0.0, 0.5], [1.0, -2.0, 1.0]])
    orders = [[0] * dim]
    orders += [[int(i == j) for j in range(dim)] for i in range(dim)]
    orders += [
        [int(i == k) + int(j == k) for k in range(dim)]
        for i in range(dim)
        for j in range(dim)
    ]
    columns = [reduce(torch.kron, (stencils[n] for n in order)) for order in orders]
    return torch.stack(columns, dim=-1)
