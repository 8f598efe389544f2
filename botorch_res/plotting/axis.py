"""The axis of a parameter: its values, its ticks, and what is between them.

A list of numbers has a scale, but nothing between its values. A category has not even a
scale: its names stand beside each other, and no line leads from one to the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from torch import Tensor

from botorch_res.domain import DomainPart
from botorch_res.plotting.figure import equidistant
from botorch_res.study.parameters import Parameter
from botorch_res.study.space import ParameterSpace

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The largest number of values with a tick each.
_MAX_TICKS = 6
# Names with more letters than this in all overlap along a panel.
_MAX_LETTERS = 36


@dataclass(frozen=True)
class Axis:
    """A parameter along an axis of a panel.

    Attributes:
        parameter: The parameter.
        along: The values along the axis in the domain's coordinates, increasing.
        is_listed: Whether it can take no value between these.
        is_category: Whether the values stand for categories.
    """

    parameter: Parameter
    along: Tensor
    is_listed: bool = False
    is_category: bool = False

    @cached_property
    def numbers(self) -> list[float]:
        """The values along the axis as numbers, in the parameter's unit."""
        return [self.parameter.number(value) for value in self.along.tolist()]

    @property
    def name(self) -> str:
        """The name of the parameter."""
        return self.parameter.name

    @property
    def margin(self) -> float:
        """The room that a category takes on each side of its number."""
        if not self.is_category:
            return 0.0
        return 0.4 * min(b - a for a, b in pairwise(self.numbers))

    def dress(self, axes: Axes, which: Literal["x", "y"]) -> None:
        """Give an axis of a panel its label, its scale and its ticks.

        Args:
            axes: The panel.
            which: The axis.
        """
        scale = "log" if self.parameter.log else "linear"
        axes.set(**{f"{which}label": self.parameter.label(), f"{which}scale": scale})
        if self.parameter.integer and not self.parameter.log:
            axes.locator_params(axis=which, integer=True)
        if not self.is_category and len(self.numbers) > _MAX_TICKS:
            return
        texts = [_shown(self.parameter.named(number)) for number in self.numbers]
        set_ticks = axes.set_xticks if which == "x" else axes.set_yticks
        set_ticks(self.numbers, texts, minor=False)
        set_ticks([], minor=True)
        if which == "x" and sum(map(len, texts)) > _MAX_LETTERS:
            axes.tick_params(axis="x", rotation=90)

    def separate(self, axes: Axes, which: Literal["x", "y"]) -> None:
        """Draw white gaps between the stripes of categories.

        Args:
            axes: The panel.
            which: The axis.
        """
        if self.is_category:
            draw = axes.axvline if which == "x" else axes.axhline
            for before, after in pairwise(self.numbers):
                draw((before + after) / 2, color="white", lw=3)


def coordinates(part: DomainPart, column: int, num: int) -> Tensor:
    """List values along a column of a part of a domain, in increasing order.

    Args:
        part: The part.
        column: The column.
        num: The number of values along a free column.

    Returns:
        All values of a listed column, or equidistant ones of a free one.
    """
    place = part.columns.index(column)
    if place in part.free:
        return equidistant(part.bounds[:, place], num)
    rows = part.combine(part.free_bounds[:1], part.rows)
    return rows[:, place].unique()  # type: ignore[no-any-return]


def setting_axis(space: ParameterSpace, column: int, num: int) -> Axis:
    """Make the axis of what a controllable parameter can be set to.

    Args:
        space: The parameters.
        column: The parameter's column.
        num: The number of values along a range.

    Returns:
        The axis.
    """
    return _make_axis(space, space.parameters[column], space.domain.x, column, num)


def evaluation_axis(space: ParameterSpace, column: int, num: int) -> Axis:
    """Make the axis of what can be evaluated: with a tolerance, what comes out.

    Args:
        space: The parameters.
        column: The parameter's column.
        num: The number of values along a range.

    Returns:
        The axis.
    """
    domain = space.domain.evaluations
    part = domain.theta if column in domain.theta.columns else domain.x
    return _make_axis(space, space.widened[column], part, column, num)


def _make_axis(
    space: ParameterSpace, parameter: Parameter, part: DomainPart, column: int, num: int
) -> Axis:
    """The axis of a parameter's column in a part of the domain."""
    is_listed = part.columns.index(column) in part.listed
    along = coordinates(part, column, num)
    return Axis(parameter, along, is_listed, column in space.domain.cat_dims)


def _shown(value: float | str) -> str:
    """A value as a tick shows it."""
    return value if isinstance(value, str) else f"{value:g}"
