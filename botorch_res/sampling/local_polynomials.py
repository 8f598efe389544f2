r"""Functions of two variables as polynomials around the points of a grid.

A search evaluates the same functions and their derivatives at tens of thousands of
points. If they are analytic, their values on a grid finer than the lengthscale say
everything: the polynomial through the neighbours of a place in the grid, expanded
around it,

    f(z) = sum_ij c_ij d_1^i d_2^j,

is close to the function nearby. The coefficients at all places are computed once, from
one value at each grid point. An evaluation then looks up 36 numbers instead of
computing hundreds of features. For a squared exponential kernel, values are right to
about 1e-9 of the prior standard deviation, gradients to 1e-7 of it per lengthscale and
Hessians to 1e-5.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from botorch_res.sampling import memory
from botorch_res.sampling.batch_function import BatchFunction, Derivatives

# Grid points per lengthscale, and the number of them on each side that a polynomial
# goes through, along each axis.
DENSITY = 8.0
RADIUS = 6
# Between two grid points there is one more place to expand around. From there on, this
# degree along each axis is as good as the polynomial.
PER_SPACING = 2
DEGREE = 5
# The largest number of places. In a step of Robust Entropy Search with two tolerances,
# in a box of 4, 6, 8 and 12 lengthscales (4.2, 9.4, 17 and 38 thousand places), they
# save 36, 28 and 8 %, and cost 29 % more.
MAX_PLACES = 10_000
# Expansions are used up to this many distances between places. More than a half can
# only come from rounding.
REACH = 0.75


class LocalPolynomials:
    """Derivatives of ``sample_shape`` functions of two variables in a box."""

    def __init__(
        self, functions: BatchFunction, bounds: Tensor, counts: list[int]
    ) -> None:
        """Evaluate the functions on a grid, and expand them around its places.

        Args:
            functions: The functions.
            bounds: The ``2 x 2`` bounds of the box.
            counts: The number of grid points along each axis, both ends included. There
                are a few more beyond the ends.
        """
        self.sample_shape = functions.sample_shape
        self.lower, width = bounds[0], bounds[1] - bounds[0]
        sizes = [PER_SPACING * (n - 1) + 1 for n in counts]
        self.last = bounds.new_tensor([n - 1.0 for n in sizes])
        self.rate = self.last / width  # places per unit
        axes = [torch.arange(-RADIUS, n + RADIUS, device=bounds.device) for n in counts]
        grid = self.lower + PER_SPACING / self.rate * torch.cartesian_prod(*axes)
        values = functions(grid).unflatten(-1, [len(axis) for axis in axes])
        first, second = (_expansion_table(n, bounds) for n in counts)
        # sample_shape x (places, powers) x (places, powers)
        table = first.flatten(0, 1) @ values @ second.flatten(0, 1).mT
        table = table.unflatten(-1, second.shape[:2]).unflatten(-3, first.shape[:2])
        table = table.transpose(-2, -3).flatten(-4, -3)
        own = table.shape[-3] * torch.arange(
            self.sample_shape.numel(), device=bounds.device
        )
        # The coefficients of all functions, one place after the other, and where those
        # of each function begin. Along the second axis places are next to each other.
        self.coefficients = table.flatten(0, -3)
        self.begin = own.view(*self.sample_shape, 1)
        self.row_length = sizes[1]
        self.powers = _derivatives_of_powers(bounds)

    def derivative_table(self, columns: Tensor) -> LocalDerivatives:
        """Prepare the derivatives with respect to some columns.

        Args:
            columns: The indices of the ``k`` columns of ``z`` to differentiate by,
                which may repeat.

        Returns:
            A function of points that broadcast with ``sample_shape x n x 2``, which
            returns values and derivatives. They are NaN beyond the box.
        """
        return LocalDerivatives(self, columns)

    def orders(self, z: Tensor) -> Tensor:
        """Evaluate the functions and their derivatives, in units of places.

        Args:
            z: Points that broadcast with ``sample_shape x n x 2``.

        Returns:
            ``sample_shape x n x 9`` derivatives of order 0, 1 and 2 by the second
            variable, of each order by the first one.
        """
        at = (z.expand(*self.sample_shape, *z.shape[-2:]) - self.lower) * self.rate
        place = at.round().fmax(torch.zeros_like(self.last)).fmin(self.last)
        offset = at - place
        offset = torch.where(offset.abs() <= REACH, offset, torch.nan)
        row, column = place.long().unbind(-1)
        index = self.begin + self.row_length * row + column
        around = self.coefficients.index_select(0, index.flatten())
        powers = offset.unsqueeze(-1).expand(*offset.shape, DEGREE).cumprod(dim=-1)
        powers = torch.cat([torch.ones_like(powers[..., :1]), powers], dim=-1)
        basis = (powers @ self.powers).unflatten(-1, (DEGREE + 1, 3))
        left, right = basis.unbind(-3)
        result: Tensor = left.mT @ (around.unflatten(0, index.shape) @ right)
        return result.flatten(-2)


class LocalDerivatives:
    """Derivatives of the functions by fixed columns."""

    def __init__(self, functions: LocalPolynomials, columns: Tensor) -> None:
        """Find the derivatives among those of all orders.

        Args:
            functions: The functions.
            columns: The indices of the ``k`` columns.
        """
        self.functions = functions
        self.first = columns.new_tensor([3, 1])[columns]
        second = columns.new_tensor([[6, 4], [4, 2]])
        self.second = second[columns][:, columns].flatten()
        self.rate = functions.rate[columns]
        self.rates = self.rate * self.rate.unsqueeze(-1)

    def __call__(self, z: Tensor) -> Derivatives:
        """Evaluate the functions and their derivatives.

        Args:
            z: Points that broadcast with ``sample_shape x n x 2``.

        Returns:
            The values and derivatives.
        """
        orders = self.functions.orders(z)
        gradient = self.rate * orders.index_select(-1, self.first)
        hessian = orders.index_select(-1, self.second).unflatten(-1, self.rates.shape)
        return Derivatives(orders[..., 0], gradient, self.rates * hessian)


def expand_locally(functions: BatchFunction, bounds: Tensor) -> LocalPolynomials | None:
    """Expand functions in a box, if they are simple enough for it to pay.

    Args:
        functions: The functions.
        bounds: The ``2 x d`` bounds of the box.

    Returns:
        The expansions, or ``None`` if the functions are not analytic functions of two
        variables, or change too often in the box.
    """
    scale = functions.lengthscale
    if not functions.is_analytic or scale is None or len(scale) != 2:
        return None
    widths = (bounds[1] - bounds[0]) / scale
    counts = [max(5, math.ceil(1.0 + DENSITY * width)) for width in widths.tolist()]
    places = math.prod(PER_SPACING * (n - 1) + 1 for n in counts)
    size = functions.sample_shape.numel() * places * (DEGREE + 1) ** 2
    if places > MAX_PLACES or size > memory.MAX_ELEMENTS:
        return None
    with torch.no_grad():
        return LocalPolynomials(functions, bounds, counts)


def _expansion_table(count: int, like: Tensor) -> Tensor:
    """Make the ``places x powers x points`` table from values to expansions."""
    double = torch.double
    neighbours = torch.arange(2 * RADIUS + 1, device=like.device)
    nodes = torch.linspace(-1.0, 1.0, len(neighbours), dtype=double)
    polynomial = torch.linalg.inv(torch.linalg.vander(nodes))
    power = torch.arange(DEGREE + 1, dtype=double).unsqueeze(-1)
    degree = torch.arange(len(neighbours), dtype=double)
    choose = [[math.comb(j, i) for j in range(len(degree))] for i in range(DEGREE + 1)]
    # Between two grid points the expansion is that of the polynomial of the first one.
    shift = torch.arange(PER_SPACING, dtype=double) / (PER_SPACING * RADIUS)
    moved = shift[:, None, None] ** (degree - power).clamp_min(0.0)
    expansion = torch.tensor(choose, dtype=double) * moved @ polynomial
    expansion = expansion / (PER_SPACING * RADIUS) ** power
    places = torch.arange(PER_SPACING * (count - 1) + 1, device=like.device)
    columns = (places // PER_SPACING).unsqueeze(-1) + neighbours
    table = like.new_zeros(len(places), count + 2 * RADIUS, DEGREE + 1)
    table[places.unsqueeze(-1), columns] = expansion.to(like)[places % PER_SPACING].mT
    return table.mT


def _derivatives_of_powers(like: Tensor) -> Tensor:
    """Make the table from powers to them and their first and second derivatives."""
    power = torch.arange(DEGREE + 1, dtype=like.dtype, device=like.device)
    value = power.new_ones(len(power)).diag()
    slope = power[1:].diag(1)
    return torch.stack([value, slope, slope @ slope], dim=-1).flatten(-2)
