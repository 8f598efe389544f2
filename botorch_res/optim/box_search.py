r"""A global search for the maxima of many functions in the unit cube.

The first stage is a table of values on a product grid. From the most promising local
maxima of the table climbers go up by Newton's method. Where the functions are analytic,
they do so on polynomials through the values of the table, which cost next to nothing.
With one variable these are as good as the functions, to about 1e-10 of their standard
deviation, and are all that is needed; with more, and for rough functions, the last
steps are on the functions themselves.

Climbers never go down, and one of them starts at the highest point of the grid, so that
the search ends in no lower basin than that. The number of steps is fixed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from botorch_res.optim.climb import TINY_STEP, Climbers, aim, climb
from botorch_res.optim.interpolation import GridInterpolation
from botorch_res.optim.product_grid import ProductGrid, grid_counts
from botorch_res.optim.search_plan import plan_search
from botorch_res.sampling import Derivatives

# Steps on polynomials, which cost next to nothing.
POLYNOMIAL_STEPS = 3


class Maxima(NamedTuple):
    """The highest local maxima of many functions.

    Attributes:
        theta: ``... x k x d`` points, the highest first.
        value: ``... x k`` values, which are minus infinity if there are not so many.
        depth: ``... x k``, how far one goes down from each on the way to a higher one,
            as far as the grid can tell. A maximum that is about to vanish has no depth.
            Known in a box of one dimension only, else infinite; infinite for the
            highest, too.
        valley: ``... x (k - 1) x d`` lowest points on these ways, of all but the
            highest, and any point where there is none; ``... x 0 x d`` if the depth is
            not known.
    """

    theta: Tensor
    value: Tensor
    depth: Tensor
    valley: Tensor


class BoxSearch:
    """Finds maxima in the unit cube, with a grid that is laid once.

    Attributes:
        points: ``M x d`` points of the cube, or a little beyond it, at which values
            are to be given.
        plan: How the search goes on from there.
    """

    def __init__(
        self,
        width: Tensor,
        lengthscale: Tensor | None,
        is_analytic: bool,
        effort: float,
    ) -> None:
        """Choose the grid and how to search from it.

        Args:
            width: ``d`` widths of the box that the cube stands for.
            lengthscale: ``d`` distances over which the functions change, if known.
            is_analytic: Whether polynomials approximate the functions well.
            effort: Scales the density of the grid and the number of local searches.
        """
        dim = len(width)
        plan = plan_search(dim, is_analytic, effort)
        counts = grid_counts(lengthscale, width, plan.density, plan.max_points)
        # Too rough for this grid; rounding may have taken one.
        if dim == 1 and counts[0] >= plan.max_points - 1:
            plan = plan_search(dim, False, effort)
        self.plan, radius, margin = plan, plan.radius, plan.margin
        counts = [max(n, 2 * (radius - margin) + 1) for n in counts]
        self.grid = ProductGrid(counts, width, margin)
        if radius:
            self.polynomials = GridInterpolation(counts, radius, margin, width)
        self.points = self.grid.points
        self.nodes = self.grid.inside(self.points.mT).mT

    def maximize(
        self,
        values: Tensor,
        derivatives: Callable[[Tensor], Derivatives],
        num_maxima: int,
    ) -> Maxima:
        """Find the highest local maxima.

        Args:
            values: ``... x M`` values at all ``points``.
            derivatives: Value and derivatives at ``... x n x d`` points of the cube.
            num_maxima: The number ``k`` of maxima.

        Returns:
            The maxima in the cube.
        """
        plan, inside = self.plan, self.grid.inside(values)
        num_climbs = max(plan.num_climbs, num_maxima)
        num_peaks = max(plan.num_peaks, num_maxima)
        theta, promise = self.grid.peaks(inside, num_peaks)
        # What the quadratics promise may be lower than the grid: its highest point is
        # one more start.
        highest, index = inside.max(dim=-1, keepdim=True)
        top = self.nodes[index]
        start = torch.cat([theta[..., :num_climbs, :], top], dim=-2)
        missing = torch.cat([promise[..., :num_climbs], highest], dim=-1).isinf()
        climbers = self._leave_grid(values, start, derivatives, POLYNOMIAL_STEPS)
        if plan.num_steps:
            # On polynomials the values have converged; else the next step counts, too.
            height = climbers.value + (0.0 if plan.radius else climbers.gain)
            height = torch.where(missing, -torch.inf, height)
            num_finalists = max(plan.num_finalists, num_maxima)
            height, index = self._rank(climbers.theta, height, num_finalists)
            climbers, missing = climbers.select(index), height.isinf()
            if plan.radius:
                start = (climbers.theta + climbers.step).clamp(0.0, 1.0)
                climbers = aim(start, derivatives(start), self.grid.spacing)
            climbers = climb(derivatives, climbers, plan.num_steps)
        # Values cannot tell points apart that are closer than the square root of their
        # precision, but gradients can: the last, tiny step is right although it gains
        # nothing that could be measured.
        tiny = climbers.step.abs() <= TINY_STEP
        theta = (climbers.theta + tiny * climbers.step).clamp(0.0, 1.0)
        value = torch.where(missing, -torch.inf, climbers.value)
        # The highest point of the grid may still be above all climbers. Else it is no
        # maximum.
        above = highest > value.amax(dim=-1, keepdim=True)
        highest = torch.where(above, highest, -torch.inf)
        value = torch.cat([value, highest], dim=-1)
        theta = torch.cat([theta, top], dim=-2)
        value, index = self._rank(theta, value, num_maxima)
        theta = theta.take_along_dim(index.unsqueeze(-1), dim=-2)
        return Maxima(theta, value, *self._depth(inside, theta, value))

    def _depth(
        self, inside: Tensor, theta: Tensor, value: Tensor
    ) -> tuple[Tensor, Tensor]:
        """How far one goes down from each maximum on the way to a higher one.

        Args:
            inside: ``... x M`` values on the grid.
            theta: ``... x k x d`` maxima, the highest first.
            value: ``... x k`` their values.

        Returns:
            ``... x k`` depths, and the lowest points, as in ``Maxima``.
        """
        k, dim = theta.shape[-2:]
        depth = torch.full_like(value, torch.inf)
        if dim > 1 or k == 1:
            return depth, theta[..., :0, :]
        lower, higher = torch.tril_indices(k, k, offset=-1, device=theta.device)
        one, other = theta.index_select(-2, lower), theta.index_select(-2, higher)
        nodes = self.nodes.squeeze(-1)
        between = (nodes > torch.minimum(one, other)) & (
            nodes < torch.maximum(one, other)
        )
        way = torch.where(between, inside.unsqueeze(-2), torch.inf)
        lowest, place = way.min(dim=-1)
        fall = (value.index_select(-1, lower) - lowest).clamp_min(0.0)
        # One for the second, two for the third, and so on.
        sizes = list(range(1, k))
        least = [part.min(dim=-1, keepdim=True) for part in fall.split(sizes, dim=-1)]
        places = [
            part.gather(-1, pair.indices)
            for part, pair in zip(place.split(sizes, dim=-1), least, strict=True)
        ]
        depth = torch.cat([depth[..., :1], *(pair.values for pair in least)], dim=-1)
        return depth, self.nodes[torch.cat(places, dim=-1)]

    def approach(
        self,
        values: Tensor,
        derivatives: Callable[[Tensor], Derivatives],
        num_maxima: int,
        known: Tensor | None,
    ) -> Climbers:
        """Come near to the highest local maxima, with few evaluations.

        Args:
            values: ``... x M`` values at all ``points``.
            derivatives: Value and derivatives at ``... x n x d`` points of the cube;
                by other variables, too, in front.
            num_maxima: The number ``k`` of maxima.
            known: ``... x m x d`` points near to other maxima, if any.

        Returns:
            ``... x (k + m)`` climbers with these derivatives.
        """
        start = self.grid.peaks(self.grid.inside(values), num_maxima).theta
        if known is not None:
            start = torch.cat([start, known], dim=-2)
        climbers = self._leave_grid(values, start, derivatives, num_steps=2)
        if self.plan.radius:
            start = (climbers.theta + climbers.step).clamp(0.0, 1.0)
            return aim(start, derivatives(start), self.grid.spacing)
        return climb(derivatives, climbers, start.shape[-1] - 1)

    def _leave_grid(
        self,
        values: Tensor,
        start: Tensor,
        derivatives: Callable[[Tensor], Derivatives],
        num_steps: int,
    ) -> Climbers:
        """Climb from the grid, on polynomials if these are good enough.

        Args:
            values: ``... x M`` values at all ``points``.
            start: ``... x k x d`` points of the cube.
            derivatives: The functions' derivatives at such points.
            num_steps: Steps on polynomials; on the functions it is one.

        Returns:
            Climbers next to local maxima.
        """
        if self.plan.radius:
            derivatives = self.polynomials.through(values, start)
        else:
            num_steps = 1
        climbers = aim(start, derivatives(start), self.grid.spacing)
        return climb(derivatives, climbers, num_steps)

    def _rank(
        self, theta: Tensor, value: Tensor, num_maxima: int
    ) -> tuple[Tensor, Tensor]:
        """Choose the highest points, only one of those that are next to one another.

        Args:
            theta: ``... x m x d`` points of the unit cube.
            value: ``... x m`` their values.
            num_maxima: The number ``k`` of points to choose.

        Returns:
            ``... x k`` values, minus infinity where there are not so many, and the
            positions of the points.
        """
        if num_maxima == 1:
            return value.max(dim=-1, keepdim=True)
        apart = (theta.unsqueeze(-2) - theta.unsqueeze(-3)).abs()
        near = (apart <= 1.01 * self.grid.spacing).all(dim=-1)
        rank = value.argsort(dim=-1, descending=True, stable=True).argsort(dim=-1)
        behind = rank.unsqueeze(-1) > rank.unsqueeze(-2)
        repeated = (near & behind).any(dim=-1)
        value = torch.where(repeated, -torch.inf, value)
        more = (0, max(0, num_maxima - value.shape[-1]))
        value, index = pad(value, more, value=-torch.inf).topk(num_maxima, dim=-1)
        return value, index.clamp_max(repeated.shape[-1] - 1)
