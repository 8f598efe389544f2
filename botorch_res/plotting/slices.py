"""Slices through a study: maps over one controllable and one uncontrollable parameter.

Where tolerances are all that is uncertain, the maps are over two controllable ones.

A parameter with finitely many values has a stripe for each of them, so that a map never
shows what nobody can choose.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from botorch_res.plotting.figure import (
    WORST_COLOR,
    WORST_LABEL,
    broken_at_jumps,
    coordinates,
)
from botorch_res.plotting.predictions import Predictions, other_values
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


@dataclass(frozen=True)
class Slice(Predictions):
    """A grid over two parameters; the others are as in the recommended worst case.

    Attributes:
        x: The controllable parameter, as it comes out.
        y: The uncontrollable parameter, or another controllable one if there is none.
        x_values: The ``n_x`` values of the first in their unit, increasing.
        y_values: The ``n_y`` values of the second in their unit, increasing.
        others: The values of the other parameters, in words.
    """

    x: Parameter
    y: Parameter
    x_values: list[float]
    y_values: list[float]
    others: str

    def draw(self, axes: Axes, values: Tensor, label: str, colours: str) -> None:
        """Draw values over the slice in colours.

        Args:
            axes: The panel.
            values: ``n_x x n_y`` values.
            label: What the values are.
            colours: The name of a colour map.
        """
        mesh = axes.pcolormesh(
            self.x_values,
            self.y_values,
            values.mT,
            shading="nearest",
            cmap=colours,
            rasterized=True,
        )
        axes.figure.colorbar(mesh, ax=axes, label=label, fraction=0.05, pad=0.02)
        axes.set(
            xlabel=self.x.label(),
            ylabel=self.y.label(),
            xscale="log" if self.x.log else "linear",
            yscale="log" if self.y.log else "linear",
        )
        if self.others:
            axes.set_title(f"at {self.others}", fontsize="small")
        tick_few(self.x_values, axes.set_xticks)
        tick_few(self.y_values, axes.set_yticks)

    def draw_worst_theta(self, axes: Axes, curve: WorstCaseCurve) -> None:
        """Draw the predicted worst theta of each x, in a study of a single theta.

        Args:
            axes: The panel.
            curve: The worst-case curve along this slice's controllable parameter.
        """
        from matplotlib.patheffects import withStroke

        span = self.y_values[-1] - self.y_values[0]
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


def make_slices(optimizer: RobustOptimizer, best: StudyRecommendation) -> list[Slice]:
    """Choose the slices to draw.

    Args:
        optimizer: The study.
        best: The recommendation, through which the slices go.

    Returns:
        The slices of all pairs of a controllable and an uncontrollable parameter, or of
        controllable ones if there are no others; of many pairs those along which the
        prediction varies most.
    """
    domain = optimizer.space.domain.evaluations
    x, theta = domain.x.columns, domain.theta.columns
    pairs = list(product(x, theta)) or list(combinations(x, 2))
    slices = [_make_slice(optimizer, best, i, j) for i, j in pairs]
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
    along_x, along_y = (
        coordinates(space.domain.evaluations, column, _NUM_VALUES) for column in (i, j)
    )
    points = best.point.repeat(len(along_x), len(along_y), 1)
    points[..., i] = along_x.unsqueeze(-1)
    points[..., j] = along_y
    x, y = space.widened[i], space.widened[j]
    return Slice(
        optimizer,
        points,
        x,
        y,
        [x.number(value) for value in along_x.tolist()],
        [y.number(value) for value in along_y.tolist()],
        others=other_values(space, best, (i, j)),
    )
