"""Pictures of robust test problems: the truth, as far as it is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from botorch.exceptions.errors import UnsupportedError
from torch import Tensor

from botorch_res.plotting.axis import coordinates
from botorch_res.plotting.figure import (
    LEGEND,
    LEGEND_ABOVE,
    OPTIMUM,
    ROBUST_OPTIMUM,
    WORST_COLOR,
    broken_at_jumps,
    equidistant,
    new_figure,
)
from botorch_res.plotting.tolerance_problem import plot_tolerance_problem
from botorch_res.test_functions import RobustTestProblem

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Up to this many choices of theta have a curve of their own.
MAX_CURVES = 4
# How often the search for the plain optimum zooms in on the best point of the grid.
PLAIN_ZOOMS = 6


class _Grid(NamedTuple):
    """A problem on ``n_x x n_theta`` points: its values, and what they cost us."""

    x: Tensor
    theta: Tensor
    values: Tensor
    costs: Tensor


def plot_problem(
    problem: RobustTestProblem,
    x_label: str | None = None,
    theta_label: str = "theta (uncontrollable)",
    value_label: str | None = None,
    num_x: int = 401,
    num_theta: int = 121,
) -> Figure:
    """Draw a problem with one controllable variable and one uncertainty.

    With an uncontrollable variable, the upper panel shows the function, the worst
    ``theta`` of each ``x``, and the plain and the robust optimum; the lower panel shows
    the worst and the best case of each ``x`` (or the curve of every ``theta``, if they
    are few) and what the two optima cost at worst. Thin lines on the function mark the
    choices of a finite ``theta``.

    With a tolerance, the picture shows the function, the worst that can come out of
    each setting, and for both optima all that can come out of them.

    Args:
        problem: A problem with ``d_x = d_theta = 1``, of numbers and not of categories.
        x_label: The label of the controllable variable.
        theta_label: The label of the uncontrollable variable.
        value_label: The label of the function's values.
        num_x: The number of values of ``x`` at which the function is drawn.
        num_theta: The number of values of ``theta`` at which the function is drawn.

    Returns:
        The figure.

    Example:
        >>> plot_problem(RobustBranin()).savefig("branin.png")
    """
    domain = problem.domain
    if (domain.x.dim, domain.theta.dim) != (1, 1) or domain.cat_dims:
        raise UnsupportedError(
            "Only a problem with one controllable and one uncontrollable variable, "
            "both of them numbers, can be drawn; "
            f"{type(problem).__name__} has {domain.x.dim} and {domain.theta.dim}, and "
            f"{len(domain.cat_dims)} of categories."
        )
    if domain.tolerances:
        return plot_tolerance_problem(
            problem,
            x_label or "what is set, and what comes out",
            value_label or "f",
            num_x,
        )
    x_label, value_label = x_label or "x (controllable)", value_label or "f(x, theta)"
    (i,), (j,) = domain.x.columns, domain.theta.columns
    x = equidistant(domain.bounds[:, i], num_x)
    theta = equidistant(domain.bounds[:, j], num_theta)
    grid = _evaluate(
        problem,
        coordinates(domain.x, i, num_x),
        coordinates(domain.theta, j, num_theta),
    )

    figure = new_figure(6.4, 5.6)
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[1.15, 1])
    _draw_function(top, _evaluate(problem, x, theta), value_label)
    if domain.theta.is_finite:
        for choice in grid.theta.tolist():
            top.axhline(choice, color="white", lw=0.6, alpha=0.3)
        if len(grid.theta) <= MAX_CURVES:
            top.set_yticks(grid.theta.tolist())
    top.plot(
        *broken_at_jumps(
            grid.x, _worst_theta(problem, grid), float(grid.theta[-1] - grid.theta[0])
        ),
        color=WORST_COLOR,
        lw=4,
        solid_capstyle="butt",
        clip_on=False,
        label="worst theta of each x",
    )
    _draw_cases(bottom, problem, grid)
    _draw_optima(top, bottom, problem, grid)
    top.set_ylabel(theta_label)
    bottom.set(xlabel=x_label, ylabel=value_label)
    bottom.margins(y=0.1)
    for axes in (top, bottom):
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(
        *top.get_legend_handles_labels(), ncols=3, markerscale=0.8, **LEGEND_ABOVE
    )
    bottom.legend(
        loc="lower center", bbox_to_anchor=(0.5, 1), ncols=MAX_CURVES + 1, **LEGEND
    )
    return figure


def _evaluate(problem: RobustTestProblem, x: Tensor, theta: Tensor) -> _Grid:
    """Evaluate a problem without noise at all pairs of values."""
    points = problem.domain.join(x.view(-1, 1, 1), theta.view(-1, 1))
    values = problem(points, noise=False)
    costs = values if problem.is_minimization_problem else -values
    return _Grid(x, theta, values, costs)


def _draw_function(axes: Axes, box: _Grid, label: str) -> None:
    """Draw the function over the whole box, also between the choices."""
    from matplotlib.ticker import MaxNLocator

    # A few steep corners should not take all the colours.
    low, high = torch.quantile(box.values, box.values.new_tensor([0.01, 0.98])).tolist()
    levels = MaxNLocator(20).tick_values(low, high)
    extensions: Any = ("neither", "min", "max", "both")
    below, above = box.values.min() < levels[0], box.values.max() > levels[-1]
    colours = axes.contourf(
        box.x.cpu(),
        box.theta.cpu(),
        box.values.mT.cpu(),
        levels=levels,
        cmap="viridis",
        extend=extensions[int(below) + 2 * int(above)],
    )
    axes.margins(0)
    axes.figure.colorbar(colours, ax=axes, label=label, fraction=0.05, pad=0.02)


def _worst_theta(problem: RobustTestProblem, grid: _Grid) -> Tensor:
    """Find the worst ``theta`` of each ``x``."""
    worst = grid.costs.argmax(dim=-1)
    theta = grid.theta[worst]
    if problem.domain.theta.is_finite:
        return theta
    # The vertex of a parabola through three neighbours, so that the line has no steps.
    inner = worst.clamp(1, len(grid.theta) - 2)
    triple = torch.stack([inner - 1, inner, inner + 1], dim=-1)
    before, at, after = grid.costs.gather(-1, triple).unbind(-1)
    offset = (before - after) / (before - 2 * at + after) / 2
    spacing = grid.theta[1] - grid.theta[0]
    return torch.where(inner == worst, theta + offset * spacing, theta)


def _draw_cases(axes: Axes, problem: RobustTestProblem, grid: _Grid) -> None:
    """Draw the cases of each ``x``: the worst, and the best or all."""
    x = grid.x.cpu()
    worst = problem.worst_case_value(grid.x.unsqueeze(-1)).cpu()
    axes.plot(x, worst, color=WORST_COLOR, lw=3, zorder=3, label="worst case")
    if len(grid.theta) > MAX_CURVES:
        best = grid.values.aminmax(dim=-1)[0 if problem.is_minimization_problem else 1]
        axes.plot(x, best.cpu(), color="0.6", lw=1.5, label="best case")
    else:
        styles = ("-", "--", "-.", ":")[: len(grid.theta)]
        curves = zip(grid.theta.tolist(), grid.values.cpu().mT, styles, strict=True)
        for theta, values, style in curves:
            label = f"theta = {theta:.4g}"
            axes.plot(x, values, color="0.3", lw=1.2, ls=style, label=label)


def _plain_optimum(problem: RobustTestProblem, grid: _Grid) -> tuple[Tensor, Tensor]:
    """Find the point with the best value of all."""
    domain = problem.domain

    def around(values: Tensor, index: int, is_finite: bool) -> Tensor:
        if is_finite:
            return values[index].view(1)
        ends = [max(index - 1, 0), min(index + 1, len(values) - 1)]
        return equidistant(values[ends], 21)

    for _ in range(PLAIN_ZOOMS):
        row, column = divmod(int(grid.costs.argmin()), len(grid.theta))
        x, theta = grid.x[row], grid.theta[column]
        grid = _evaluate(
            problem,
            around(grid.x, row, domain.x.is_finite),
            around(grid.theta, column, domain.theta.is_finite),
        )
    return x, theta


def _draw_optima(
    top: Axes, bottom: Axes, problem: RobustTestProblem, grid: _Grid
) -> None:
    """Mark the plain and the robust optimum."""
    plain = OPTIMUM | {"marker": "o", "ms": 10, "color": "#f5a623"}
    robust = problem.domain.split(problem.robust_optimizer)
    for name, (x, theta), style in (
        ("plain", _plain_optimum(problem, grid), plain),
        ("robust", robust, ROBUST_OPTIMUM | {"ms": 16}),
    ):
        cost = float(problem.worst_case_value(x.view(1)))
        label = f"{name} optimum: {cost:.3g} at worst"
        top.plot(float(x), float(theta), label=label, **style)
        bottom.plot(float(x), cost, **style)
        bottom.axvline(float(x), color="0.85", lw=1, zorder=0)
