"""Pictures of a study: what the model has learnt, and how far the search has come.

With one controllable and one uncontrollable parameter a map shows everything. With more
of them, maps are slices through the recommendation, one for each pair of a controllable
and an uncontrollable parameter, and the trials are projected onto them. Tolerances are
bands around the recommended setting.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from botorch.exceptions.errors import InputDataError

from botorch_res.plotting.figure import (
    LEGEND_ABOVE,
    WORST_COLOR,
    WORST_LABEL,
    new_figure,
)
from botorch_res.plotting.panels import draw_band, make_panels
from botorch_res.study import RobustOptimizer
from botorch_res.study.recommendation import StudyRecommendation
from botorch_res.study.space import ParameterSpace
from botorch_res.test_functions import RobustTestProblem

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The size of a panel in inches: two of them beside each other fill a page's width.
_WIDTH, _HEIGHT = 4.8, 3.3
# Histories of longer studies are drawn at so many of their trials.
_MAX_HISTORY = 25
# An early interval this many times as wide as all that came later is cut off.
_MAX_FLATTENING = 3.0


def plot_study(
    optimizer: RobustOptimizer,
    problem: RobustTestProblem | None = None,
    value_label: str = "value",
    history: bool = True,
) -> Figure:
    """Draw a study: prediction, information gain, worst case and progress.

    Args:
        optimizer: The study, with at least one value.
        problem: The problem behind the values if its optimum is known; the progress is
            then the regret. The study's parameters must be those of the problem, in
            its order, under any names.
        value_label: What the values are, with their unit.
        history: Whether to draw the progress, which takes many fits.

    Returns:
        The figure.

    Example:
        >>> plot_study(optimizer).savefig("study.png")
    """
    _check_problem(optimizer, problem)
    study = make_panels(optimizer, value_label)
    panels = study.overview()
    if history:
        panels.append(partial(_draw_progress, optimizer, problem, value_label))
    return _draw(panels)


def plot_posterior(optimizer: RobustOptimizer, value_label: str = "value") -> Figure:
    """Draw the model's prediction and its standard deviation, with the trials.

    Args:
        optimizer: The study, with at least one value.
        value_label: What the values are, with their unit.

    Returns:
        The figure.
    """
    study = make_panels(optimizer, value_label)
    return _draw(study.posterior())


def plot_acquisition(optimizer: RobustOptimizer) -> Figure:
    """Draw the information that the next trial would give about the robust optimum.

    Args:
        optimizer: The study, with at least one value.

    Returns:
        The figure.
    """
    study = make_panels(optimizer)
    return _draw(study.acquisition())


def plot_worst_case(optimizer: RobustOptimizer, value_label: str = "value") -> Figure:
    """Draw the predicted worst case along each controllable parameter.

    Args:
        optimizer: The study, with at least one value.
        value_label: What the values are, with their unit.

    Returns:
        The figure.
    """
    return _draw(make_panels(optimizer, value_label).curves())


def plot_progress(
    optimizer: RobustOptimizer,
    problem: RobustTestProblem | None = None,
    value_label: str = "value",
) -> Figure:
    """Draw how good the recommendation was after each value.

    Args:
        optimizer: The study, with at least one value.
        problem: The problem behind the values if its optimum is known. Then the regret
            is drawn, by how much the true worst case of the recommended setting is
            worse than the best possible one; otherwise the predicted worst case. The
            study's parameters must be those of the problem, in its order, under any
            names.
        value_label: What the values are, with their unit.

    Returns:
        The figure.
    """
    _check_problem(optimizer, problem)
    return _draw([partial(_draw_progress, optimizer, problem, value_label)])


def _draw(panels: Sequence[Callable[[Axes], None]]) -> Figure:
    """Draw panels in two columns, the last as wide as needed, with a single legend."""
    columns = min(len(panels), 2)
    rows = -(-len(panels) // columns)
    figure = new_figure(columns * _WIDTH, rows * _HEIGHT + 0.3)
    grid = figure.add_gridspec(rows, columns)
    *inner, last = [divmod(number, columns) for number in range(len(panels))]
    cells = [*(grid[row, column] for row, column in inner), grid[last[0], last[1] :]]
    entries: dict[str, Any] = {}
    for axes, draw in zip(
        [figure.add_subplot(cell) for cell in cells], panels, strict=True
    ):
        draw(axes)
        handles, labels = axes.get_legend_handles_labels()
        entries |= dict(zip(labels, handles, strict=True))
    if entries:
        figure.legend(
            list(entries.values()),
            list(entries),
            ncols=-(-len(entries) // -(-len(entries) // (3 * columns))),
            markerscale=0.9,
            **LEGEND_ABOVE,
        )
    # The layout settles after a first pass.
    figure.draw_without_rendering()
    return figure


def _check_problem(
    optimizer: RobustOptimizer, problem: RobustTestProblem | None
) -> None:
    """Raise unless a study is about a problem, whatever its parameters are called."""
    if problem is None:
        return
    wanted = ParameterSpace.from_domain(problem.domain)
    maximize = not problem.is_minimization_problem
    if optimizer.maximize != maximize or not optimizer.space.spans(wanted.domain):
        raise InputDataError(
            f"Expected a study of {type(problem).__name__} (maximize={maximize}, "
            f"{wanted.describe()}), got one with maximize={optimizer.maximize}, "
            f"{optimizer.space.describe()}. The parameters may have names of their "
            "own, but must be those of the problem, in its order, with its bounds and "
            "values: its `domain` has them. Or leave the problem out."
        )


def _show_later_intervals(axes: Axes, found: list[StudyRecommendation]) -> None:
    """Keep wide intervals of the first half from flattening the rest of a history."""
    later = found[len(found) // 2 :]
    values = [r.value for r in found]
    low = min(values + [r.lower for r in later])
    high = max(values + [r.upper for r in later])
    bottom, top = axes.get_ylim()
    if top - bottom > _MAX_FLATTENING * (high - low) > 0:
        margin = 0.05 * (high - low)
        axes.set_ylim(low - margin, high + margin)


def _draw_progress(
    optimizer: RobustOptimizer,
    problem: RobustTestProblem | None,
    label: str,
    axes: Axes,
) -> None:
    """Draw the regret or the predicted worst case after each value."""
    total = optimizer.num_told
    step = -(-total // _MAX_HISTORY)
    counts = [*range(1, total, step), total]
    found = [optimizer.recommend(after=count) for count in counts]
    style: dict[str, Any] = {"color": WORST_COLOR, "marker": "o", "ms": 3}
    if problem is None:
        draw_band(axes, counts, [r.lower for r in found], [r.upper for r in found])
        axes.plot(counts, [r.value for r in found], label=WORST_LABEL, **style)
        _show_later_intervals(axes, found)
        axes.set_ylabel(f"recommended worst-case\n{label}")
    else:
        numbers = {p.name: p.number_of for p in optimizer.space.parameters}
        rows = [[numbers[name](value) for name, value in r.x.items()] for r in found]
        x = torch.tensor(rows).to(problem.bounds)
        worse = problem.worst_case_value(x) - problem.robust_optimal_value
        regret = worse.abs().tolist()
        axes.plot(counts, regret, **style)
        if min(regret) > 0:
            axes.set_yscale("log")
        else:  # Logarithmic down to the smallest one above zero, which has a place too.
            smallest = min((r for r in regret if r > 0), default=1.0)
            axes.set_yscale("symlog", linthresh=smallest)
            axes.set_ylim(bottom=0)
        axes.set_ylabel(f"regret of worst-case\n{label}")
    axes.set_xlabel("number of values")
    axes.locator_params(axis="x", integer=True)
    axes.spines[["top", "right"]].set_visible(False)
