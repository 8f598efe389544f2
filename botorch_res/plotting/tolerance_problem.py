"""Pictures of problems of one variable with a tolerance: set x, get x + delta."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from botorch_res.plotting.axis import coordinates
from botorch_res.plotting.figure import (
    LEGEND_ABOVE,
    OPTIMUM,
    ROBUST_OPTIMUM,
    WORST_COLOR,
    equidistant,
    new_figure,
)
from botorch_res.test_functions import RobustTestProblem

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PLAIN_COLOR, ROBUST_COLOR = "0.75", "#f5a623"
# The number of deviations among which the worst one is looked for.
NUM_DEVIATIONS = 401


def plot_tolerance_problem(
    problem: RobustTestProblem, x_label: str, value_label: str, num_x: int
) -> Figure:
    """Draw a problem with one variable, whose setting is met up to a tolerance.

    Args:
        problem: The problem.
        x_label: The label of the variable.
        value_label: The label of the function's values.
        num_x: The number of values of the variable.

    Returns:
        The figure.
    """
    domain = problem.domain
    outcomes = equidistant(domain.evaluations.bounds[:, 0], num_x)
    settings = coordinates(domain.x, 0, num_x).unsqueeze(-1)
    values = problem(outcomes.unsqueeze(-1), noise=False)
    nominal = problem(domain.nearest_evaluation(settings), noise=False)
    worst = problem.worst_case_value(settings)
    best = nominal.argmin() if problem.is_minimization_problem else nominal.argmax()

    figure = new_figure(6.4, 4.2)
    axes = figure.subplots()
    axes.plot(outcomes.cpu(), values.cpu(), color="#1f3b73", lw=2, label="function")
    axes.plot(
        settings.squeeze(-1).cpu(),
        worst.cpu(),
        color=WORST_COLOR,
        lw=2,
        label="worst within tolerance of each setting",
    )
    plain = OPTIMUM | {"marker": "o", "ms": 10, "color": PLAIN_COLOR}
    robust = ROBUST_OPTIMUM | {"ms": 16}
    _draw_setting(axes, problem, "plain", float(settings[best]), PLAIN_COLOR, plain)
    at = float(problem.robust_setting)
    _draw_setting(axes, problem, "robust", at, ROBUST_COLOR, robust)
    axes.set(xlabel=x_label, ylabel=value_label)
    axes.margins(x=0)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(ncols=2, markerscale=0.8, **LEGEND_ABOVE)
    return figure


def _draw_setting(
    axes: Axes,
    problem: RobustTestProblem,
    name: str,
    setting: float,
    color: str,
    style: dict[str, Any],
) -> None:
    """Mark a setting, what can come out of it, and the worst of that."""
    domain = problem.domain
    x = domain.bounds.new_tensor([[setting]])
    theta = coordinates(domain.theta, 0, NUM_DEVIATIONS).unsqueeze(-1)
    outcomes = domain.join(x, theta)
    values = problem(outcomes, noise=False)
    best = values.argmax() if problem.is_minimization_problem else values.argmin()
    lower, upper = outcomes.min(), outcomes.max()
    axes.axvspan(float(lower), float(upper), color=color, alpha=0.3, lw=0, zorder=0)
    worst = float(problem.worst_case_value(x))
    axes.plot([setting, float(outcomes[best])], [worst, worst], color="black", lw=1.2)
    cross = {"marker": "X", "ms": 9, "color": WORST_COLOR, "mec": "white"}
    axes.plot(float(outcomes[best]), worst, **OPTIMUM | cross)
    label = f"{name} optimum: {worst:.3g} at worst"
    axes.plot(setting, worst, label=label, **style)
