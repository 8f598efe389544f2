"""How thoroughly the worst case is searched for in a box."""

from __future__ import annotations

from typing import NamedTuple


class SearchPlan(NamedTuple):
    """How the worst case is searched for in a box.

    Attributes:
        density: Grid points for each lengthscale.
        num_peaks: Local maxima on the grid that are looked at.
        radius: Neighbours, on each side, of the polynomials that improve them; zero if
            the functions are too rough for this.
        margin: Grid points beyond the box, which make the polynomials accurate in all
            of it.
        num_climbs: How many of the improved maxima are climbed.
        num_steps: Steps of the best climber; zero if the polynomials are exact.
    """

    density: float
    num_peaks: int
    radius: int
    margin: int
    num_climbs: int
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
    peaks = max(4, round(4 * dim * dim * effort))
    if is_analytic and dim == 1:
        # So fine that the polynomials are as good as the functions.
        return SearchPlan(max(8.0, 8.0 * effort), peaks, 6, 6, 2, 0)
    if is_analytic and dim <= 3:
        return SearchPlan(4.0 * effort, peaks, 5 - dim, 0, 2 * dim + 2, dim)
    climbs = max(1, round((dim + 1) * effort))
    density = 4.5 if dim == 1 else 3.0
    return SearchPlan(density * effort, peaks, 0, 0, climbs, max(4, 2 + dim))
