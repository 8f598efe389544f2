"""Pictures of a study, drawn with matplotlib (the extra ``plot``).

As in ``plotting``, a function returns a ``Figure`` that belongs to the caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from botorch_res.optim.recommend import mean_function
from botorch_res.optimizer import RobustOptimizer
from botorch_res.plotting import ROBUST_COLOR, WORST_COLOR, _new_figure
from botorch_res.study.recommendation import StudyRecommendation

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_STAR: dict[str, Any] = {
    "marker": "*",
    "ms": 16,
    "mec": "black",
    "color": ROBUST_COLOR,
    "ls": "none",
    "zorder": 5,
    "clip_on": False,
}
_GRID = 81
# Histories of longer studies are drawn at so many of their trials.
_MAX_HISTORY = 25


def plot_study(optimizer: RobustOptimizer, history: bool = True) -> Figure:
    """Draw a study: what the model has learnt, and how the recommendation came about.

    With one controllable and one uncontrollable parameter the first panel shows the
    predicted function with the data. Then follows the predicted worst case along each
    controllable parameter, through the recommendation, with its 95 % interval; and
    last the recommended worst-case value after each trial.

    Args:
        optimizer: The study, with at least one value.
        history: Whether to draw the last panel, which takes one fit for each trial.

    Returns:
        The figure.
    """
    best = optimizer.recommend()
    domain = optimizer.space.domain
    is_flat = (domain.x_dim, domain.theta_dim) == (1, 1)
    count = is_flat + domain.x_dim + history
    figure = _new_figure()
    figure.set_size_inches(6.4, 2.6 * count + 0.4)
    panels = list(figure.subplots(count, 1, squeeze=False)[:, 0])
    if is_flat:
        _draw_mean(figure, panels.pop(0), optimizer, best)
    for name in best.x:
        _draw_curve(panels.pop(0), optimizer, best, name)
    if history:
        _draw_history(panels.pop(0), optimizer)
    return figure


def _draw_mean(
    figure: Figure, axes: Axes, optimizer: RobustOptimizer, best: StudyRecommendation
) -> None:
    """Draw the posterior mean over both parameters, with the data."""
    space, domain = optimizer.space, optimizer.space.domain
    model, unit = optimizer.fit()
    x, theta = (
        torch.lerp(
            bounds[0], bounds[1], torch.linspace(0, 1, _GRID).to(bounds)[:, None]
        )
        for bounds in (domain.x_bounds, domain.theta_bounds)
    )
    points = domain.join(x.unsqueeze(-2), theta).reshape(-1, 2)
    with torch.no_grad():
        values = unit * mean_function(model)(points).reshape(_GRID, _GRID)
    named_x, named_theta = (
        space.parameters[columns[0]]
        for columns in (domain.controllable, domain.uncontrollable)
    )
    colours = axes.contourf(
        [named_x.decode(value) for value in x[:, 0].tolist()],
        [named_theta.decode(value) for value in theta[:, 0].tolist()],
        values.mT,
        levels=20,
        cmap="viridis",
    )
    figure.colorbar(colours, ax=axes, label="predicted value", fraction=0.05, pad=0.02)
    styles: dict[str, dict[str, Any]] = {
        "complete": {"marker": "o", "mfc": "black", "mec": "white"},
        "running": {"marker": "o", "mfc": "none", "mec": "white"},
        "failed": {"marker": "x", "mec": WORST_COLOR},
    }
    for trial in optimizer.trials:
        row = trial.parameters or {}
        axes.plot(
            row[named_x.name],
            row[named_theta.name],
            ms=5,
            clip_on=False,
            zorder=4,
            **styles[trial.state],
        )
    axes.plot(best.x[named_x.name], best.theta[named_theta.name], **_STAR)
    axes.set(xlabel=named_x.label(), ylabel=named_theta.label())
    for scale, parameter in (("xscale", named_x), ("yscale", named_theta)):
        axes.set(**{scale: "log" if parameter.log else "linear"})
    axes.margins(0)


def _draw_curve(
    axes: Axes, optimizer: RobustOptimizer, best: StudyRecommendation, name: str
) -> None:
    """Draw the predicted worst case along one controllable parameter."""
    curve = best.curve[name]
    (parameter,) = (p for p in optimizer.space.parameters if p.name == name)
    is_finite = optimizer.space.domain.x_is_finite
    style: dict[str, Any] = {"marker": "o", "ms": 3} if is_finite else {}
    axes.fill_between(
        curve.x,
        curve.lower,
        curve.upper,
        color=WORST_COLOR,
        alpha=0.2,
        lw=0,
        label="95 % interval",
    )
    axes.plot(
        curve.x, curve.value, color=WORST_COLOR, label="predicted worst case", **style
    )
    label = f"recommended: {best.value:.4g} at worst"
    axes.plot(best.x[name], best.value, label=label, **_STAR)
    axes.set(
        xlabel=parameter.label(),
        ylabel="worst case",
        xscale="log" if parameter.log else "linear",
    )
    axes.margins(x=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(
        loc="lower center",
        bbox_to_anchor=(0.5, 1),
        ncols=3,
        frameon=False,
        fontsize="small",
        handlelength=1.6,
        markerscale=0.6,
    )


def _draw_history(axes: Axes, optimizer: RobustOptimizer) -> None:
    """Draw the recommended worst-case value after each trial."""
    total = optimizer.num_told
    step = -(-total // _MAX_HISTORY)
    counts = [*range(1, total, step), total]
    found = [optimizer.recommend(after=count) for count in counts]
    axes.fill_between(
        counts,
        [r.lower for r in found],
        [r.upper for r in found],
        color=WORST_COLOR,
        alpha=0.2,
        lw=0,
    )
    axes.plot(counts, [r.value for r in found], color=WORST_COLOR, marker="o", ms=3)
    axes.set(xlabel="values told", ylabel="recommended worst case")
    axes.locator_params(axis="x", integer=True)
    axes.spines[["top", "right"]].set_visible(False)
