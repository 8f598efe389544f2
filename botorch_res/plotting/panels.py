"""The panels of a study's pictures: maps, curves, and the recommendation in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from botorch_res.acquisition import qRobustEntropySearch
from botorch_res.plotting.axis import Axis, evaluation_axis, setting_axis
from botorch_res.plotting.figure import (
    MARKS,
    OPTIMUM,
    ROBUST_OPTIMUM,
    WORST_COLOR,
    WORST_LABEL,
)
from botorch_res.plotting.predictions import NUM_VALUES, Profile, make_profile
from botorch_res.plotting.slices import Slice, make_slices
from botorch_res.study import RobustOptimizer
from botorch_res.study.parameters import Value
from botorch_res.study.recommendation import WorstCaseCurve
from botorch_res.study.storage import COMPLETE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# How the trials of each state are marked, and called.
_TRIALS = {
    "complete": {
        "marker": "o",
        "ms": 5,
        "mfc": "black",
        "mec": "white",
        "label": "told",
    },
    "running": {"marker": "^", "ms": 7, "mfc": "white", "mec": "black"},
    "failed": {"marker": "X", "ms": 8, "mfc": "white", "mec": "black"},
}
# More values than these have a line without markers, which would touch.
_MAX_MARKERS = 50
BAND: dict[str, Any] = {"color": WORST_COLOR, "alpha": 0.25, "label": "95 % interval"}
MEAN_COLOR, MEAN_LABEL = "#1f3b73", "prediction"
TOLERANCE_COLOR, TOLERANCE_LABEL = "#f5a623", "within tolerance"


class Panels:
    """What the panels of a study show: each method draws one of them, or lists some."""

    def __init__(self, optimizer: RobustOptimizer, label: str = "value") -> None:
        self.optimizer = optimizer
        self.best = optimizer.recommend()
        self.label = label
        self.parameters = {p.name: p for p in optimizer.space.parameters}

    def number(self, values: Mapping[str, Value], name: str) -> float:
        """Where a parameter's value is along an axis."""
        return self.parameters[name].number_of(values[name])

    @cached_property
    def acqf(self) -> qRobustEntropySearch:
        """The study's acquisition function."""
        return self.optimizer.acquisition()

    def overview(self) -> list[Callable[[Axes], None]]:
        """The panels that show what the model has learnt."""
        return self.maps(self.draw_mean, self.draw_information_gain) + self.curves()

    def posterior(self) -> list[Callable[[Axes], None]]:
        """The panels that show the prediction."""
        return self.maps(self.draw_mean, self.draw_standard_deviation)

    def acquisition(self) -> list[Callable[[Axes], None]]:
        """The panels that show what there is to learn."""
        return self.maps(self.draw_information_gain)

    def maps(
        self, *drawings: Callable[[Slice, Axes], None]
    ) -> list[Callable[[Axes], None]]:
        """A panel for each slice and each kind of map."""
        slices = make_slices(self.optimizer, self.best)
        return [partial(draw, one) for one in slices for draw in drawings]

    def curves(self) -> list[Callable[[Axes], None]]:
        """A panel for each controllable parameter."""
        return [partial(self.draw_curve, name) for name in self.best.x]

    def draw_mean(self, one: Slice, axes: Axes) -> None:
        """Draw the posterior mean, the worst theta of each x, and the trials."""
        one.draw(axes, one.mean(), f"predicted {self.label}", "viridis")
        if self.best.theta.keys() == {one.y.name}:
            one.draw_worst_theta(axes, self.best.curve[one.x.name])
        self.draw_trials(one, axes)

    def draw_standard_deviation(self, one: Slice, axes: Axes) -> None:
        """Draw the posterior standard deviation, and the trials."""
        label = f"standard deviation of {self.label}"
        one.draw(axes, one.standard_deviation(), label, "cividis")
        self.draw_trials(one, axes)

    def draw_information_gain(self, one: Slice, axes: Axes) -> None:
        """Draw the information gain, where it is highest, and the trials."""
        values = one.information_gain(self.acqf)
        one.draw(axes, values, "information gain [nats]", "cividis")
        self.draw_trials(one, axes)
        row, column = divmod(int(values.argmax()), values.shape[1])
        at = one.x.numbers[row], one.y.numbers[column]
        style = MARKS | {"marker": "D", "ms": 8, "mfc": "none", "zorder": 4}
        # White around black is seen on any colour.
        axes.plot(*at, mec="white", mew=3.5, **style)
        axes.plot(*at, mec="black", mew=1.5, label="most to learn", **style)

    def draw_trials(self, one: Slice, axes: Axes) -> None:
        """Mark the trials and the recommendation."""
        # On a slice the trials are projections.
        alpha = 0.75 if one.others else 1.0
        for state, style in _TRIALS.items():
            rows = [
                t.parameters or {} for t in self.optimizer.trials if t.state == state
            ]
            if rows:
                axes.plot(
                    [self.number(row, one.x.name) for row in rows],
                    [self.number(row, one.y.name) for row in rows],
                    **MARKS | {"label": state, "alpha": alpha, "zorder": 3} | style,
                )
        self.draw_tolerance(one, axes)
        settings = self.best.theta | self.best.x
        at = (self.number(settings, name) for name in (one.x.name, one.y.name))
        self.draw_star(axes, *at)

    def draw_star(self, axes: Axes, x: float, y: float) -> None:
        """Mark the recommendation."""
        axes.plot(x, y, ms=13, label="recommended", **ROBUST_OPTIMUM)

    def draw_tolerance(self, one: Slice, axes: Axes) -> None:
        """Frame what can come out of the recommended setting, and mark the worst."""
        from matplotlib.patheffects import withStroke

        names = (one.x.name, one.y.name)
        if not self.best.deviation.keys() & set(names):
            return
        (left, right), (bottom, top) = map(self.reach, (one.x, one.y))
        axes.fill(
            [left, right, right, left],
            [bottom, bottom, top, top],
            fc="none",
            ec=TOLERANCE_COLOR,
            lw=2,
            zorder=2,
            path_effects=[withStroke(linewidth=4, foreground="black")],
            label=TOLERANCE_LABEL,
        )
        at = (self.number(self.best.worst_case, name) for name in names)
        self.draw_worst(axes, *at)

    def draw_worst(self, axes: Axes, x: float, y: float) -> None:
        """Mark the worst that can come out of the recommended setting."""
        style = OPTIMUM | {"marker": "X", "ms": 10, "color": WORST_COLOR}
        axes.plot(x, y, label="worst within tolerance", **style | {"mec": "white"})

    def reach(self, axis: Axis) -> tuple[float, float]:
        """The ends, along an axis, of what can come out of the recommended setting."""
        ends = axis.numbers[0], axis.numbers[-1]
        if axis.name not in self.best.theta:
            ends = self.tolerance(axis.name)
        return ends[0] - axis.margin, ends[1] + axis.margin

    def tolerance(self, name: str) -> tuple[float, float]:
        """The smallest and the largest value that come out of a recommended setting."""
        parameter, setting = self.parameters[name], self.number(self.best.x, name)
        below, above = parameter.tolerance or (0.0, 0.0)
        return parameter.deviate(setting, below), parameter.deviate(setting, above)

    def draw_curve(self, name: str, axes: Axes) -> None:
        """Draw the predicted worst case along one controllable parameter.

        With a tolerance, also draw the prediction itself, and what can come out.
        """
        curve, space = self.best.curve[name], self.optimizer.space
        parameter, setting = self.parameters[name], self.number(self.best.x, name)
        column = space.parameters.index(parameter)
        axis = setting_axis(space, column, len(curve.x))
        self.draw_interval(axes, curve, axis)
        draw_values(axes, curve, axis)
        if parameter.tolerance is not None:
            ends = self.tolerance(name)
            axes.axvspan(
                *ends,
                color=TOLERANCE_COLOR,
                alpha=0.35,
                lw=0,
                zorder=0,
                label=TOLERANCE_LABEL,
            )
            self.draw_profile(make_profile(self.optimizer, self.best, column), axes)
            worst = self.number(self.best.worst_case, name)
            level = [self.best.value, self.best.value]
            axes.plot([worst, setting], level, color="black", lw=1.2)
            self.draw_worst(axes, worst, self.best.value)
        self.draw_star(axes, setting, self.best.value)
        axes.set_ylabel(
            self.label if parameter.tolerance else f"worst-case\n{self.label}"
        )
        axis.dress(axes, "x")
        # Half a step on each side of categories.
        axes.margins(x=0.5 / (len(axis.numbers) - 1) if axis.is_category else 0.02)
        axes.spines[["top", "right"]].set_visible(False)

    def draw_interval(self, axes: Axes, curve: WorstCaseCurve, axis: Axis) -> None:
        """Draw the interval of the worst case along one parameter."""
        if axis.is_category:
            style = BAND | {"lw": 12}
            axes.vlines(curve.x, curve.lower, curve.upper, **style)
        else:
            draw_band(axes, curve.x, curve.lower, curve.upper)

    def draw_profile(self, one: Profile, axes: Axes) -> None:
        """Draw the posterior mean along one parameter."""
        axes.plot(one.x.numbers, one.mean(), color=MEAN_COLOR, label=MEAN_LABEL)
        if one.others:
            axes.set_title(f"{MEAN_LABEL} at {one.others}", fontsize="small")


class LinePanels(Panels):
    """The panels of a study of one parameter, with a tolerance: curves, and no maps."""

    def overview(self) -> list[Callable[[Axes], None]]:
        """The panels that show what the model has learnt."""
        return [*self.curves(), self.draw_line_of_information]

    def posterior(self) -> list[Callable[[Axes], None]]:
        """The panels that show the prediction."""
        return self.curves()

    def acquisition(self) -> list[Callable[[Axes], None]]:
        """The panels that show what there is to learn."""
        return [self.draw_line_of_information]

    def draw_interval(self, axes: Axes, curve: WorstCaseCurve, axis: Axis) -> None:
        """Draw no interval of the worst case: that of the prediction is there."""

    def draw_profile(self, one: Profile, axes: Axes) -> None:
        """Draw the prediction with its interval, and the trials."""
        mean, deviation = one.mean(), 1.96 * one.standard_deviation()
        axes.fill_between(
            one.x.numbers,
            mean - deviation,
            mean + deviation,
            color=MEAN_COLOR,
            alpha=0.15,
            lw=0,
            label="95 % of the prediction",
        )
        super().draw_profile(one, axes)
        for state, style in _TRIALS.items():
            rows = [t for t in self.optimizer.trials if t.state == state]
            # A trial without a value is marked at the edge.
            place = (
                {} if state == COMPLETE else {"transform": axes.get_xaxis_transform()}
            )
            if rows:
                axes.plot(
                    [(t.parameters or {})[one.x.name] for t in rows],
                    [t.value or 0.0 for t in rows],
                    **MARKS | {"label": state, "zorder": 4} | style | place,
                )

    def draw_line_of_information(self, axes: Axes) -> None:
        """Draw the information gain, and where it is highest."""
        axis = evaluation_axis(self.optimizer.space, 0, NUM_VALUES)
        one = make_profile(self.optimizer, self.best, 0, axis)
        gain = one.information_gain(self.acqf)
        axes.plot(one.x.numbers, gain, color=MEAN_COLOR)
        most = int(gain.argmax())
        style = MARKS | {"marker": "D", "ms": 8, "mfc": "none", "mec": "black"}
        axes.plot(one.x.numbers[most], gain[most], label="most to learn", **style)
        one.x.dress(axes, "x")
        axes.set_ylabel("information gain [nats]")
        axes.margins(x=0.02)
        axes.spines[["top", "right"]].set_visible(False)


def make_panels(optimizer: RobustOptimizer, label: str = "value") -> Panels:
    """Choose the panels for a study.

    Args:
        optimizer: The study, with at least one value.
        label: What the values are, with their unit.

    Returns:
        The panels.
    """
    is_line = optimizer.space.domain.dim == 1
    return (LinePanels if is_line else Panels)(optimizer, label)


def draw_values(axes: Axes, curve: WorstCaseCurve, axis: Axis) -> None:
    """Draw the predicted worst case: a line where there is something between values."""
    style: dict[str, Any] = {"color": WORST_COLOR, "label": WORST_LABEL}
    if axis.is_category:
        style |= MARKS | {"marker": "o", "ms": 6}
    elif axis.is_listed and len(axis.numbers) <= _MAX_MARKERS:
        style |= {"marker": "o", "ms": 3}
    axes.plot(curve.x, curve.value, **style)


def draw_band(axes: Axes, x: Any, lower: Any, upper: Any) -> None:
    """Draw an interval of the worst case."""
    axes.fill_between(x, lower, upper, **BAND | {"lw": 0})
