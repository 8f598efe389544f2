"""Pictures of a study: what the model has learnt, and how far the search has come.

With one controllable and one uncontrollable parameter a map shows everything. With more
of them, maps are slices through the recommendation, one for each pair of a controllable
and an uncontrollable parameter, and the trials are projected onto them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from botorch.exceptions.errors import InputDataError

from botorch_res.plotting.figure import (
    LEGEND,
    ROBUST_COLOR,
    WORST_COLOR,
    WORST_LABEL,
    new_figure,
)
from botorch_res.plotting.slices import Slice, draw_map, make_slices, tick_few
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
# More values than these have a line without markers, which would touch.
_MAX_MARKERS = 50


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
    if problem is not None:
        _check_problem(optimizer, problem)
    best = optimizer.recommend()
    slices = make_slices(optimizer, best)
    names = list(best.x)
    figure, panels = _panels(2 * len(slices) + len(names) + history)
    for one in slices:
        _draw_mean(figure, next(panels), optimizer, best, one, value_label)
        _draw_acquisition(figure, next(panels), optimizer, best, one)
    for name in names:
        _draw_curve(next(panels), optimizer, best, name, value_label)
    if history:
        _draw_progress(next(panels), optimizer, problem, value_label)
    return _finished(figure)


def plot_posterior(optimizer: RobustOptimizer, value_label: str = "value") -> Figure:
    """Draw the model's prediction and its standard deviation, with the trials.

    Args:
        optimizer: The study, with at least one value.
        value_label: What the values are, with their unit.

    Returns:
        The figure.
    """
    best = optimizer.recommend()
    slices = make_slices(optimizer, best)
    figure, panels = _panels(2 * len(slices))
    for one in slices:
        _draw_mean(figure, next(panels), optimizer, best, one, value_label)
        axes = next(panels)
        label = f"standard deviation of {value_label}"
        values = one.standard_deviation(optimizer)
        draw_map(figure, axes, one, values, label, "cividis")
        _draw_trials(axes, optimizer, best, one)
    return _finished(figure)


def plot_acquisition(optimizer: RobustOptimizer) -> Figure:
    """Draw the information that the next trial would give about the robust optimum.

    Args:
        optimizer: The study, with at least one value.

    Returns:
        The figure.
    """
    best = optimizer.recommend()
    slices = make_slices(optimizer, best)
    figure, panels = _panels(len(slices))
    for one in slices:
        _draw_acquisition(figure, next(panels), optimizer, best, one)
    return _finished(figure)


def plot_worst_case(optimizer: RobustOptimizer, value_label: str = "value") -> Figure:
    """Draw the predicted worst case along each controllable parameter.

    Args:
        optimizer: The study, with at least one value.
        value_label: What the values are, with their unit.

    Returns:
        The figure.
    """
    best = optimizer.recommend()
    figure, panels = _panels(len(best.x))
    for name in best.x:
        _draw_curve(next(panels), optimizer, best, name, value_label)
    return _finished(figure)


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
    if problem is not None:
        _check_problem(optimizer, problem)
    figure, panels = _panels(1)
    _draw_progress(next(panels), optimizer, problem, value_label)
    return _finished(figure)


def _panels(count: int) -> tuple[Figure, Any]:
    """A figure of two columns, or of one for one panel, and its panels in turn."""
    columns = min(count, 2)
    rows = -(-count // columns)
    figure = new_figure(columns * _WIDTH, rows * _HEIGHT + 0.3)
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for empty in grid[count:]:
        empty.remove()
    return figure, iter(grid[:count])


def _finished(figure: Figure) -> Figure:
    """A figure with one legend for all of its panels."""
    entries: dict[str, Any] = {}
    for axes in figure.axes:
        handles, labels = axes.get_legend_handles_labels()
        entries |= dict(zip(labels, handles, strict=True))
    in_a_row = 6 if figure.get_figwidth() > _WIDTH else 3
    rows = -(-len(entries) // in_a_row)
    if entries:
        figure.legend(
            list(entries.values()),
            list(entries),
            loc="outside upper center",
            ncols=-(-len(entries) // rows),
            markerscale=0.9,
            columnspacing=1.5,
            **LEGEND,
        )
    # The layout settles after a first pass.
    figure.draw_without_rendering()
    return figure


def _check_problem(optimizer: RobustOptimizer, problem: RobustTestProblem) -> None:
    """Raise unless a study is about a problem, whatever its parameters are called."""
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


def _draw_mean(
    figure: Figure,
    axes: Axes,
    optimizer: RobustOptimizer,
    best: StudyRecommendation,
    one: Slice,
    label: str,
) -> None:
    """Draw the posterior mean, the worst theta of each x, and the trials."""
    values = one.mean(optimizer)
    draw_map(figure, axes, one, values, f"predicted {label}", "viridis")
    if len(best.theta) == 1:
        one.draw_worst_theta(axes, best.curve[one.x.name])
    _draw_trials(axes, optimizer, best, one)


def _draw_acquisition(
    figure: Figure,
    axes: Axes,
    optimizer: RobustOptimizer,
    best: StudyRecommendation,
    one: Slice,
) -> None:
    """Draw the information gain, and where it is highest."""
    values = one.information_gain(optimizer)
    draw_map(figure, axes, one, values, "information gain [nats]", "cividis")
    _draw_trials(axes, optimizer, best, one)
    row, column = divmod(int(values.argmax()), values.shape[1])
    # White around black is seen on any colour.
    for width, color, label in ((3.5, "white", None), (1.5, "black", "most to learn")):
        axes.plot(
            one.x_values[row],
            one.theta_values[column],
            marker="D",
            ms=8,
            mfc="none",
            mec=color,
            mew=width,
            ls="none",
            zorder=4,
            clip_on=False,
            label=label,
        )


def _draw_trials(
    axes: Axes, optimizer: RobustOptimizer, best: StudyRecommendation, one: Slice
) -> None:
    """Mark the trials and the recommendation."""
    styles: dict[str, dict[str, Any]] = {
        "complete": {"marker": "o", "ms": 5, "mfc": "black", "mec": "white"},
        "running": {"marker": "^", "ms": 7, "mfc": "white", "mec": "black"},
        "failed": {"marker": "X", "ms": 8, "mfc": "white", "mec": "black"},
    }
    labels = {"complete": "told"}
    for state, style in styles.items():
        rows = [t.parameters or {} for t in optimizer.trials if t.state == state]
        if rows:
            axes.plot(
                [row[one.x.name] for row in rows],
                [row[one.theta.name] for row in rows],
                # On a slice the trials are projections.
                alpha=0.75 if one.others else 1.0,
                ls="none",
                clip_on=False,
                zorder=3,
                label=labels.get(state, state),
                **style,
            )
    _draw_star(axes, best.x[one.x.name], best.theta[one.theta.name])


def _draw_star(axes: Axes, x: float, y: float) -> None:
    """Mark the recommendation."""
    axes.plot(
        x,
        y,
        marker="*",
        ms=13,
        mec="black",
        color=ROBUST_COLOR,
        ls="none",
        zorder=5,
        clip_on=False,
        label="recommended",
    )


def _draw_curve(
    axes: Axes,
    optimizer: RobustOptimizer,
    best: StudyRecommendation,
    name: str,
    label: str,
) -> None:
    """Draw the predicted worst case along one controllable parameter."""
    curve = best.curve[name]
    (parameter,) = (p for p in optimizer.space.parameters if p.name == name)
    is_sparse = optimizer.space.domain.x.is_finite and len(curve.x) <= _MAX_MARKERS
    style: dict[str, Any] = {"marker": "o", "ms": 3} if is_sparse else {}
    _draw_band(axes, curve.x, curve.lower, curve.upper)
    axes.plot(curve.x, curve.value, color=WORST_COLOR, label=WORST_LABEL, **style)
    _draw_star(axes, best.x[name], best.value)
    axes.set(
        xlabel=parameter.label(),
        ylabel=f"worst-case\n{label}",
        xscale="log" if parameter.log else "linear",
    )
    if parameter.integer and not parameter.log:
        axes.locator_params(axis="x", integer=True)
    tick_few(curve.x.tolist(), axes.set_xticks)
    axes.margins(x=0.02)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_band(axes: Axes, x: Any, lower: Any, upper: Any) -> None:
    """Draw an interval of the worst case."""
    axes.fill_between(
        x, lower, upper, color=WORST_COLOR, alpha=0.25, lw=0, label="95 % interval"
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
    axes: Axes,
    optimizer: RobustOptimizer,
    problem: RobustTestProblem | None,
    label: str,
) -> None:
    """Draw the regret or the predicted worst case after each value."""
    total = optimizer.num_told
    step = -(-total // _MAX_HISTORY)
    counts = [*range(1, total, step), total]
    found = [optimizer.recommend(after=count) for count in counts]
    style: dict[str, Any] = {"color": WORST_COLOR, "marker": "o", "ms": 3}
    if problem is None:
        _draw_band(axes, counts, [r.lower for r in found], [r.upper for r in found])
        axes.plot(counts, [r.value for r in found], label=WORST_LABEL, **style)
        _show_later_intervals(axes, found)
        axes.set_ylabel(f"recommended worst-case\n{label}")
    else:
        x = torch.tensor([list(r.x.values()) for r in found]).to(problem.bounds)
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
