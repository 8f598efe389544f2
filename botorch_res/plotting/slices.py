"""Slices through a study: maps over one controllable and one uncontrollable parameter.

A parameter with finitely many values has a stripe for each of them, so that a map never
shows what nobody can choose.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from botorch_res.models.moments import posterior_moments
from botorch_res.optim import mean_function
from botorch_res.plotting.figure import (
    WORST_COLOR,
    WORST_LABEL,
    broken_at_jumps,
    coordinates,
)
from botorch_res.study import RobustOptimizer
from botorch_res.study.parameters import Parameter
from botorch_res.study.recommendation import StudyRecommendation, WorstCaseCurve

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The number of values along a range.
_NUM_VALUES = 81
# The largest number of slices, and of values with a tick each.
_MAX_SLICES = 6
_MAX_TICKS = 6
_MAX_MARKERS = 20
# The most points that are predicted jointly, to bound the memory.
_CHUNK = 256


@dataclass(frozen=True)
class Slice:
    """A grid over two parameters; the others are as recommended.

    Attributes:
        optimizer: The study.
        x: The controllable parameter.
        theta: The uncontrollable parameter.
        x_values: Its ``n_x`` values in their unit, increasing.
        theta_values: Its ``n_theta`` values in their unit, increasing.
        points: ``n_x * n_theta x d`` points in the domain's coordinates.
        others: The values of the other parameters, in words.
    """

    optimizer: RobustOptimizer
    x: Parameter
    theta: Parameter
    x_values: list[float]
    theta_values: list[float]
    points: Tensor
    others: str

    def mean(self) -> Tensor:
        """The predicted values, ``n_x x n_theta``."""
        model, unit = self.optimizer.fit()
        return unit * self._evaluate(mean_function(model))

    def standard_deviation(self) -> Tensor:
        """The standard deviations of the predictions, ``n_x x n_theta``."""
        model, unit = self.optimizer.fit()

        def variance(points: Tensor) -> Tensor:
            return posterior_moments(model.posterior(points))[1].squeeze(-1)

        return unit * self._evaluate(variance).clamp_min(0.0).sqrt()

    def information_gain(self) -> Tensor:
        """What a value would tell about the robust optimum, ``n_x x n_theta``."""
        acqf = self.optimizer.acquisition()
        return self._evaluate(lambda points: acqf(points.unsqueeze(-2)))

    def draw(self, axes: Axes, values: Tensor, label: str, colours: str) -> None:
        """Draw values over the slice in colours.

        Args:
            axes: The panel.
            values: ``n_x x n_theta`` values.
            label: What the values are.
            colours: The name of a colour map.
        """
        mesh = axes.pcolormesh(
            self.x_values,
            self.theta_values,
            values.mT,
            shading="nearest",
            cmap=colours,
            rasterized=True,
        )
        axes.figure.colorbar(mesh, ax=axes, label=label, fraction=0.05, pad=0.02)
        axes.set(
            xlabel=self.x.label(),
            ylabel=self.theta.label(),
            xscale="log" if self.x.log else "linear",
            yscale="log" if self.theta.log else "linear",
        )
        if self.others:
            axes.set_title(f"at {self.others}", fontsize="small")
        tick_few(self.x_values, axes.set_xticks)
        tick_few(self.theta_values, axes.set_yticks)

    def draw_worst_theta(self, axes: Axes, curve: WorstCaseCurve) -> None:
        """Draw the predicted worst theta of each x, in a study of a single theta.

        Args:
            axes: The panel.
            curve: The worst-case curve along this slice's controllable parameter.
        """
        from matplotlib.patheffects import withStroke

        span = self.theta_values[-1] - self.theta_values[0]
        # Few values are marked each: there is nothing between them.
        few = len(self.x_values) <= _MAX_MARKERS
        axes.plot(
            *broken_at_jumps(curve.x, curve.theta[:, 0], span),
            color=WORST_COLOR,
            lw=2,
            ls="none" if few else "-",
            marker="s" if few else "",
            ms=9,
            mfc="none",
            clip_on=False,
            path_effects=[withStroke(linewidth=4, foreground="white")],
            label=WORST_LABEL,
        )

    def _evaluate(self, function: Callable[[Tensor], Tensor]) -> Tensor:
        """Evaluate a function on the grid."""
        with torch.no_grad():
            parts = [
                function(part).reshape(-1).cpu() for part in self.points.split(_CHUNK)
            ]
        return torch.cat(parts).reshape(len(self.x_values), len(self.theta_values))


def make_slices(optimizer: RobustOptimizer, best: StudyRecommendation) -> list[Slice]:
    """Choose the slices to draw.

    Args:
        optimizer: The study.
        best: The recommendation, through which the slices go.

    Returns:
        The slices of all pairs; of many pairs those along which the prediction varies
        most.
    """
    domain = optimizer.space.domain
    slices = [
        _make_slice(optimizer, best, i, j)
        for i in domain.x.columns
        for j in domain.theta.columns
    ]
    if len(slices) > _MAX_SLICES:
        means = [one.mean() for one in slices]
        variation = torch.stack([mean.max() - mean.min() for mean in means])
        kept = variation.topk(_MAX_SLICES).indices.sort().values
        slices = [slices[k] for k in kept.tolist()]
    return slices


def tick_few(values: Sequence[float], set_ticks: Callable[..., Any]) -> None:
    """Label an axis with the values along it, if they are few.

    Args:
        values: The values.
        set_ticks: ``axes.set_xticks`` or ``axes.set_yticks``.
    """
    if len(values) <= _MAX_TICKS:
        set_ticks(values, [f"{value:g}" for value in values], minor=False)
        set_ticks([], minor=True)


def _make_slice(
    optimizer: RobustOptimizer, best: StudyRecommendation, i: int, j: int
) -> Slice:
    """The slice along two columns of the domain."""
    space = optimizer.space
    values = best.x | best.theta
    along_x, along_theta = (
        coordinates(space.domain, column, _NUM_VALUES) for column in (i, j)
    )
    points = space.encode(values).repeat(len(along_x), len(along_theta), 1)
    points[..., i] = along_x.unsqueeze(-1)
    points[..., j] = along_theta
    x, theta = space.parameters[i], space.parameters[j]
    return Slice(
        optimizer,
        x,
        theta,
        [x.decode(value) for value in along_x.tolist()],
        [theta.decode(value) for value in along_theta.tolist()],
        points.flatten(0, 1),
        others=", ".join(
            f"{p.name} = {values[p.name]:.4g} {p.unit}".strip()
            for p in space.parameters
            if p not in (x, theta)
        ),
    )
