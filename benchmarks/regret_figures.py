"""The figures of the regret runs: one panel for each problem."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes

from benchmarks.comparison import Runs, quartiles
from botorch_res.plotting.figure import new_figure

# Below this, regrets are those of the search for the optimum, not of a strategy.
LEAST_REGRET = 1e-6
# The robust methods have colours of their own, the others those of a palette.
COLOURS = {
    "res:num_samples=1": "#e8743b",
    "res:num_samples=16": "#b3001b",
    "res:num_samples=1,target=characteristics": "#d9a400",
    "stable_opt:sqrt_beta=1": "#9ecae1",
    "stable_opt:sqrt_beta=2": "#3182bd",
    "stable_opt:sqrt_beta=4": "#08306b",
    "random": "#555555",
}
LABELS = {
    "res": "RES",
    "stable_opt": "StableOpt",
    "worst_case_nei": "worst-case qLogNEI",
    "thompson": "Thompson",
    "expected_improvement": "EI",
    "upper_confidence_bound": "UCB",
    "max_value_entropy": "MES",
    "knowledge_gradient": "KG",
    "joint_entropy_search": "JES",
    "random": "random",
}
OPTIONS = {
    "num_samples=": "C = ",
    "sqrt_beta=": "√β = ",
    ",target=characteristics": " (paper)",
}


def label(strategy: str) -> str:
    """A strategy's name for people.

    Args:
        strategy: The name with its options.

    Returns:
        Such as ``RES, C = 16``.
    """
    name, _, options = strategy.partition(":")
    for option, symbol in OPTIONS.items():
        options = options.replace(option, symbol)
    return LABELS.get(name, name) + (f", {options}" if options else "")


def place(strategy: str) -> tuple[int, int, str]:
    """The place of a strategy in tables and legends: robust ones first.

    Args:
        strategy: The name with its options.

    Returns:
        A key to sort by; options are in the order of their lengths, then of the text,
        so that 1 comes before 16.
    """
    name, _, options = strategy.partition(":")
    names = list(LABELS)
    order = names.index(name) if name in LABELS else len(names)
    return order, len(options), strategy


def colour_of(strategies: list[str]) -> dict[str, str | tuple[float, ...]]:
    """A colour for each strategy.

    Args:
        strategies: The names with their options.

    Returns:
        The colours.
    """
    others = [name for name in strategies if name not in COLOURS]
    palette = colormaps["Dark2"].colors
    rest = {name: palette[i % len(palette)] for i, name in enumerate(others)}
    return {name: COLOURS.get(name) or rest[name] for name in strategies}


def draw_panels(
    runs: list[Runs],
    path: Path,
    kind_of: Callable[[str], str],
    over_time: bool = False,
) -> None:
    """Draw the regret of all strategies, one panel for each problem.

    Args:
        runs: The runs.
        path: The file of the picture.
        kind_of: The kind of regret to draw, by the name of the problem.
        over_time: Whether to draw it over the seconds spent, not over the iterations.
    """
    problems = list(dict.fromkeys(run.problem for run in runs))
    strategies = sorted({run.strategy for run in runs}, key=place)
    colours = colour_of(strategies)
    columns = min(4, len(problems))
    rows = -(-len(problems) // columns)
    figure = new_figure(max(5.0, 3.2 * columns), 2.8 * rows + 1.0)
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for panel, problem in zip(panels, problems, strict=False):
        kind = kind_of(problem)
        for run in runs:
            if run.problem == problem:
                _draw(panel, run, kind, colours[run.strategy], over_time)
        panel.set_title(problem.replace("_", " "), fontsize="medium")
        panel.set_yscale("log")
        panel.set_ylabel(kind.split("_", 1)[1].replace("_", " "), fontsize="small")
        x_label = "CPU seconds in all, with fits" if over_time else "iterations"
        panel.set_xlabel(x_label, fontsize="small")
        panel.tick_params(which="both", labelsize="small")
        panel.grid(True, which="major", color="#dddddd", linewidth=0.5)
        if over_time:
            panel.set_xscale("log")
    for panel in panels[len(problems) :]:
        panel.set_visible(False)
    handles = {
        text: line
        for panel in figure.axes
        for line, text in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    names = [label(strategy) for strategy in strategies]
    figure.legend(
        [handles[name] for name in names],
        names,
        loc="outside lower center",
        ncols=min(len(handles), 2 * columns),
        fontsize="small",
        frameon=False,
    )
    figure.savefig(path)


def _draw(
    panel: Axes,
    run: Runs,
    kind: str,
    colour: str | tuple[float, ...],
    over_time: bool,
) -> None:
    """Draw the quartiles of a strategy's runs."""
    low, median, high = np.maximum(quartiles(run.regret[kind]), LEAST_REGRET)
    x = np.arange(len(median))
    if over_time:
        x = np.median(run.seconds.cumsum(axis=1), axis=0)
        # The initial points took no time, and have no place on a logarithmic axis.
        x, low, median, high = x[1:], low[1:], median[1:], high[1:]
    robust = run.strategy.split(":")[0] in ("res", "stable_opt")
    line = "-" if robust else "--"
    panel.plot(x, median, line, color=colour, label=label(run.strategy), linewidth=1.3)
    panel.fill_between(x, low, high, color=colour, alpha=0.1, linewidth=0)
