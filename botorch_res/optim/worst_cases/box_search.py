r"""A global search for the maxima of many functions in a box.

The search works in the unit cube that stands for the box. It starts with a table of
values on a product grid. From the most promising local maxima of the table, its peaks,
climbers go up by Newton's method. If the functions are analytic, they first climb on
polynomials through the values of the table, which costs almost nothing. With one
variable the polynomials are as good as the functions, to about 1e-10 of a standard
deviation, and nothing else is needed. With more variables, and for rough functions, the
last steps are on the functions themselves. Functions that are local polynomials
already need no others: see ``LocalPolynomials``.

Climbers never go down. One of them starts at the highest point of the grid, so the
search never ends lower than that. The number of steps is fixed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from botorch_res.optim.tuples import select
from botorch_res.optim.worst_cases.branches import Branches, move_with_x
from botorch_res.optim.worst_cases.interpolation import GridInterpolation
from botorch_res.optim.worst_cases.newton import TINY_STEP, Climbers, aim, climb
from botorch_res.optim.worst_cases.product_grid import ProductGrid, grid_counts
from botorch_res.optim.worst_cases.theta_search import (
    LocalMaxima,
    Slopes,
    ThetaSearch,
    WorstCase,
    without_depth,
)
from botorch_res.sampling import Derivatives

# The numbers of the search were chosen by its misses: worst cases more than 1e-3 of a
# standard deviation below the best of all variants. They were counted at 16 x for each
# of 8 posterior samples of 8 to 40 random models.
#
# Grid points per lengthscale. On a line, even half as many miss nothing; with 8,
# polynomials are as good as analytic functions. In two and three dimensions, half as
# many raise the misses from 0.02 to 0.3 % and from 0.3 to 1.3 % (analytic), or from
# 0.03 to 0.8 % and from 3.5 to 4.6 % (Matern 5/2).
INTERPOLATION_DENSITY = 8.0
ANALYTIC_DENSITY = 4.0
LINE_DENSITY = 18.0
ROUGH_DENSITY = 3.0
# The largest number of grid points. Rough functions in several dimensions may have four
# times as many. In three dimensions, a quarter raises the misses to 3.8 % (analytic)
# and 6.9 % (Matern 5/2). Four times as many reduce them to 0.05 and 1.4 %, and take two
# to four times as long.
MAX_THETAS = 8192
# A Newton step of at most this share of the grid's spacing is taken without evaluating
# the function there. With three times as much, the robust optima of these functions are
# the same to 1e-6.
TRUSTED_STEP = 0.1


class SearchPlan(NamedTuple):
    """How to search a box for the worst case.

    Attributes:
        density: Grid points per lengthscale.
        max_points: The largest number of grid points.
        num_peaks: How many local maxima of the table are looked at.
        radius: Neighbours on each side that a polynomial goes through. Zero if the
            functions are too rough for polynomials.
        margin: Grid points beyond the box, which make the polynomials accurate near
            its faces.
        num_climbers: How many peaks a climber starts from.
        num_polynomial_steps: The steps that these take on polynomials.
        num_finalists: How many climbers continue on the functions themselves.
        num_steps: The steps that these take. Zero if polynomials are good enough.
    """

    density: float
    max_points: int
    num_peaks: int
    radius: int
    margin: int
    num_climbers: int
    num_polynomial_steps: int
    num_finalists: int
    num_steps: int


def plan_search(
    dim: int, is_analytic: bool, effort: float, is_expanded: bool = False
) -> SearchPlan:
    """Choose how to search.

    Args:
        dim: The dimension of the box.
        is_analytic: Whether polynomials approximate the functions well.
        effort: Scales the density of the grid and the number of local searches.
        is_expanded: Whether the functions themselves are local polynomials.

    Returns:
        The plan.
    """
    # Half or twice as many peaks and climbers change the misses by less than 0.2 %.
    num_peaks = max(4, round(4 * dim * dim * effort))
    max_points = round(MAX_THETAS * effort)
    if is_analytic and dim == 1:
        return SearchPlan(
            density=INTERPOLATION_DENSITY * max(1.0, effort),
            max_points=max_points,
            num_peaks=num_peaks,
            radius=6,
            margin=6,
            num_climbers=2,
            num_polynomial_steps=3,
            num_finalists=1,
            num_steps=0,
        )
    if is_analytic and dim <= 3:
        # Polynomials only have to lead to where Newton's method converges. With three
        # steps on them, twice as many climbers or one more step on the functions, the
        # misses in two dimensions are the same. Where there are no polynomials to begin
        # with, because the functions are some, three steps on these are as good.
        num_climbers = max(2, round((dim + 1) * effort))
        return SearchPlan(
            density=ANALYTIC_DENSITY * effort,
            max_points=max_points,
            num_peaks=2 * num_climbers,
            radius=0 if is_expanded else 5 - dim,
            margin=0,
            num_climbers=num_climbers,
            num_polynomial_steps=0 if is_expanded else 2,
            num_finalists=1,
            num_steps=3 if is_expanded or dim == 3 else 1,
        )
    # Neither the values on the grid nor a first step show which of several peaks is the
    # highest. In three dimensions, half as many finalists miss 0.8 % more, and half as
    # many steps 1.2 %.
    num_climbers = max(2, round(dim * (dim + 1) * effort))
    return SearchPlan(
        density=(LINE_DENSITY if dim == 1 else ROUGH_DENSITY) * effort,
        max_points=max_points if dim == 1 else 4 * max_points,
        num_peaks=num_peaks,
        radius=0,
        margin=0,
        num_climbers=num_climbers,
        num_polynomial_steps=0,
        num_finalists=num_climbers // 2,
        num_steps=4 * dim,
    )


class BoxSearch(ThetaSearch):
    """Finds maxima in a box, with a grid that is made once.

    Attributes:
        thetas: ``M x d`` thetas at which the search needs values, in the box or just
            beyond it.
        plan: How the search continues from these values.
    """

    def __init__(
        self,
        bounds: Tensor,
        lengthscale: Tensor | None,
        is_analytic: bool,
        effort: float,
        is_expanded: bool = False,
    ) -> None:
        """Choose the grid, and how to search from it.

        Args:
            bounds: ``2 x d`` bounds of the box.
            lengthscale: ``d`` distances over which the functions change, if known.
            is_analytic: Whether polynomials approximate the functions well.
            effort: Scales the density of the grid and the number of local searches.
            is_expanded: Whether the functions themselves are local polynomials.
        """
        self.lower, width = bounds[0], bounds[1] - bounds[0]
        self.width = width
        dim = len(width)
        plan = plan_search(dim, is_analytic, effort, is_expanded)
        counts = grid_counts(lengthscale, width, plan.density, plan.max_points)
        # The functions are too rough for polynomials on the largest grid. Rounding may
        # have removed one point of it.
        if dim == 1 and counts[0] >= plan.max_points - 1:
            plan = plan_search(dim, False, effort)
        self.plan, radius, margin = plan, plan.radius, plan.margin
        counts = [max(n, 2 * (radius - margin) + 1) for n in counts]
        self.grid = ProductGrid(counts, width, margin)
        if radius:
            self.polynomials = GridInterpolation(counts, radius, margin, width)
        self.thetas = self.lower + width * self.grid.points
        self.cells = self.grid.inside(self.grid.points.mT).mT

    def inside(self, values: Tensor) -> Tensor:
        """Leave out the values beyond the box."""
        return self.grid.inside(values)

    def maximize(self, values: Tensor, slopes: Slopes, k: int) -> LocalMaxima:
        """Climb from the most promising peaks of the table."""
        derivatives = partial(self._in_cube, slopes.by_theta)
        theta, value = self._maximize(values, derivatives, k)
        theta = self.lower + self.width * theta
        if theta.shape[-1] > 1 or k == 1:
            return without_depth(theta, value)
        return self._with_depth(values, theta, value)

    def _with_depth(self, values: Tensor, theta: Tensor, value: Tensor) -> LocalMaxima:
        """Read the depths of maxima in one dimension from the table."""
        k = theta.shape[-2]
        lower, higher = torch.tril_indices(k, k, offset=-1, device=theta.device)
        one, other = theta.index_select(-2, lower), theta.index_select(-2, higher)
        places = self.lower + self.width * self.cells
        grid = places.squeeze(-1)
        between = (grid > torch.minimum(one, other)) & (
            grid < torch.maximum(one, other)
        )
        way = torch.where(between, self.inside(values).unsqueeze(-2), torch.inf)
        lowest, place = way.min(dim=-1)
        fall = (value.index_select(-1, lower) - lowest).clamp_min(0.0)
        # One pair for the second maximum, two for the third, and so on.
        sizes = list(range(1, k))
        least = [part.min(dim=-1, keepdim=True) for part in fall.split(sizes, dim=-1)]
        valley = [
            part.gather(-1, pair.indices)
            for part, pair in zip(place.split(sizes, dim=-1), least, strict=True)
        ]
        depth = [torch.full_like(value[..., :1], torch.inf)]
        depth += [pair.values for pair in least]
        lowest = places[torch.cat(valley, dim=-1)]
        return LocalMaxima(theta, value, torch.cat(depth, dim=-1), lowest)

    def branches(
        self,
        values: Callable[[], Tensor],
        slopes: Slopes,
        k: int,
        known: Tensor | None,
    ) -> Branches:
        """Climb from the grid and from known maxima, and tell how they move."""
        if known is not None:
            known = ((known - self.lower) / self.width).clamp(0.0, 1.0)
        derivatives = partial(self._in_cube, slopes.by_both)
        climbers = self._approach(values(), derivatives, k, known)
        # A short last step is taken on the quadratic model, without an evaluation.
        # Before a long step theta is not yet a local worst case. It stays fixed there,
        # which makes its branch a lower bound of the worst case.
        short = (climbers.step.abs() <= TRUSTED_STEP * self.grid.spacing).all(dim=-1)
        step = short.unsqueeze(-1) * climbers.step
        push = step.unsqueeze(-2) @ climbers.hessian[..., -step.shape[-1] :, :]
        state = Derivatives(
            climbers.value + short * climbers.gain,
            climbers.gradient + push.squeeze(-2),
            climbers.hessian,
        )
        theta = (climbers.theta + step).clamp(0.0, 1.0)
        return move_with_x(theta, state, short).scaled(self.lower, self.width)

    def follow(self, theta: Tensor, slopes: Slopes) -> Branches:
        """Tell how given local maxima move with ``x``."""
        theta = (theta - self.lower) / self.width
        state = self._in_cube(slopes.by_both, theta)
        movable = torch.ones_like(state.value, dtype=torch.bool)
        return move_with_x(theta, state, movable).scaled(self.lower, self.width)

    def _in_cube(
        self, derivatives: Callable[[Tensor], Derivatives], theta: Tensor
    ) -> Derivatives:
        """Differentiate at points of the unit cube, with theta in units of the cube."""
        value, gradient, hessian = derivatives(self.lower + self.width * theta)
        # The columns of x, in front, keep their units.
        others = gradient.shape[-1] - len(self.width)
        unit = pad(self.width, (others, 0), value=1.0) if others else self.width
        return Derivatives(value, unit * gradient, unit.unsqueeze(-1) * unit * hessian)

    def _maximize(
        self,
        values: Tensor,
        derivatives: Callable[[Tensor], Derivatives],
        num_maxima: int,
    ) -> WorstCase:
        """Find the highest local maxima in the unit cube."""
        plan, inside = self.plan, self.grid.inside(values)
        num_climbers = max(plan.num_climbers, num_maxima)
        num_peaks = max(plan.num_peaks, num_maxima)
        theta, promise = self.grid.peaks(inside, num_peaks)
        # The quadratics may promise less than the grid already has, so its highest
        # point is one more start.
        highest, index = inside.max(dim=-1, keepdim=True)
        top = self.cells[index]
        start = torch.cat([theta[..., :num_climbers, :], top], dim=-2)
        missing = torch.cat([promise[..., :num_climbers], highest], dim=-1).isinf()
        climbers = self._leave_grid(
            values, start, derivatives, plan.num_polynomial_steps
        )
        if plan.num_steps:
            # On polynomials the values have converged; else the next step counts, too.
            height = climbers.value + (0.0 if plan.radius else climbers.gain)
            height = torch.where(missing, -torch.inf, height)
            num_finalists = max(plan.num_finalists, num_maxima)
            height, index = self._rank(climbers.theta, height, num_finalists)
            climbers, missing = select(climbers, index), height.isinf()
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
        # If the highest point of the grid is still above all climbers, it counts as a
        # maximum.
        above = highest > value.amax(dim=-1, keepdim=True)
        highest = torch.where(above, highest, -torch.inf)
        value = torch.cat([value, highest], dim=-1)
        theta = torch.cat([theta, top], dim=-2)
        value, index = self._rank(theta, value, num_maxima)
        return WorstCase(theta.take_along_dim(index.unsqueeze(-1), dim=-2), value)

    def _approach(
        self,
        values: Tensor,
        derivatives: Callable[[Tensor], Derivatives],
        num_maxima: int,
        known: Tensor | None,
    ) -> Climbers:
        """Approach the ``k`` highest local maxima and ``m`` known ones."""
        start = self.grid.peaks(self.inside(values), num_maxima)[0]
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
        """Climb from the grid, on polynomials if they are good enough."""
        if self.plan.radius:
            derivatives = self.polynomials.through(values, start)
        else:
            num_steps = 1
        climbers = aim(start, derivatives(start), self.grid.spacing)
        return climb(derivatives, climbers, num_steps)

    def _rank(
        self, theta: Tensor, value: Tensor, num_maxima: int
    ) -> tuple[Tensor, Tensor]:
        """Choose the ``k`` highest points, but only one of any neighbours."""
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
