"""How thoroughly the worst case is searched for in a box."""

from __future__ import annotations

from typing import NamedTuple


class SearchPlan(NamedTuple):
    """How the worst case is searched for in a box.

    Attributes:
        density: Grid points for each lengthscale.
        max_points: The largest number of grid points.
        num_peaks: Local maxima on the grid that are looked at.
        radius: Neighbours, on each side, of the polynomials that improve them; zero if
            the functions are too rough for this.
        margin: Grid points beyond the box, which make the polynomials accurate in all
            of it.
        num_climbs: How many of the improved maxima are climbed.
        num_finalists: How many of the climbers are followed to the top.
        num_steps: Steps of these; zero if the polynomials are exact.
    """

    density: float
    max_points: int
    num_peaks: int
    radius: int
    margin: int
    num_climbs: int
    num_finalists: int
    num_steps: int


def plan_search(dim: int, is_analytic: bool, effort: float) -> SearchPlan:
    """Choose how to search.

    Args:
        dim: The dimension of the box.
        is_analytic: Whether polynomials approximate the functions well.
        effort: Scales the density of the grid and the number of local searches.

    Returns:
        The settings.
    """
    peaks, points = max(4, round(4 * dim * dim * effort)), round(8192 * effort)
    if is_analytic and dim == 1:
        # So fine that the polynomials are as good as the functions.
        return SearchPlan(max(8.0, 8.0 * effort), points, peaks, 6, 6, 2, 1, 0)
    if is_analytic and dim <= 3:
        density, climbs = 4.0 * effort, 2 * dim + 2
        return SearchPlan(density, points, peaks, 5 - dim, 0, climbs, 1, dim)
    # Neither the values on the grid nor a first step tell the highest of several peaks.
    climbs = max(2, round(dim * (dim + 1) * effort))
    density, points = (18.0, points) if dim == 1 else (3.0, 4 * points)
    return SearchPlan(
        density * effort, points, peaks, 0, 0, climbs, climbs // 2, 4 * dim
    )
