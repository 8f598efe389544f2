"""Slices through a study: maps over one controllable and one uncontrollable parameter.

Where tolerances are all that is uncertain, the maps are over two controllable ones.

A parameter with finitely many values has a stripe for each of them, so that a map never
shows what nobody can choose. Between the stripes of names are gaps.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, product
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from botorch_res.plotting.axis import Axis, evaluation_axis
from botorch_res.plotting.figure import (
    WORST_COLOR,
    WORST_LABEL,
    broken_at_jumps,
)
from botorch_res.plotting.predictions import Predictions, other_values
from botorch_res.study import RobustOptimizer
from botorch_res.study.recommendation import StudyRecommendation, WorstCaseCurve

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The number of values along a range.
_NUM_VALUES = 81
# The largest number of slices.
_MAX_SLICES = 6
# More values along a list than these have a line, since their marks would touch.
_MAX_MARKERS = 20


@dataclass(frozen=True)
class Slice(Predictions):
    """A grid over two parameters; the others are as in the recommended worst case.

    Attributes:
        x: The axis of the controllable parameter, as it comes out.
        y: The axis of the uncontrollable parameter, or of another controllable one if
            there is none.
        others: The values of the other parameters, in words.
    """

    x: Axis
    y: Axis
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
            self.x.numbers,
            self.y.numbers,
            values.mT,
            shading="nearest",
            cmap=colours,
            rasterized=True,
        )
        axes.figure.colorbar(mesh, ax=axes, label=label, fraction=0.05, pad=0.02)
        self.x.dress(axes, "x")
        self.y.dress(axes, "y")
        self.x.separate(axes, "x")
        self.y.separate(axes, "y")
        if self.others:
            axes.set_title(f"at {self.others}", fontsize="small")

    def draw_worst_theta(self, axes: Axes, curve: WorstCaseCurve) -> None:
        """Draw the predicted worst theta of each x, in a study of a single theta.

        Args:
            axes: The panel.
            curve: The worst-case curve along this slice's controllable parameter.
        """
        from matplotlib.patheffects import withStroke

        # From one value of a list to another, any step is a jump.
        span = 0.0 if self.y.is_listed else self.y.numbers[-1] - self.y.numbers[0]
        # Few values are marked each: there is nothing between them.
        few = self.x.is_category or len(self.x.numbers) <= _MAX_MARKERS
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


def _make_slice(
    optimizer: RobustOptimizer, best: StudyRecommendation, i: int, j: int
) -> Slice:
    """The slice along two columns of the domain."""
    space = optimizer.space
    x, y = (evaluation_axis(space, column, _NUM_VALUES) for column in (i, j))
    points = best.point.repeat(len(x.along), len(y.along), 1)
    points[..., i] = x.along.unsqueeze(-1)
    points[..., j] = y.along
    return Slice(optimizer, points, x, y, other_values(space, best, (i, j)))
