r"""A search for the worst thetas where some columns are listed and others are free.

A row of listed values leaves an ordinary function of the free columns. So all rows are
searched as boxes, in one batch: a row is one more dimension behind that of the ``b``
points. The highest maxima of all rows are the result.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from botorch_res.domain import DomainPart
from botorch_res.optim.tuples import select
from botorch_res.optim.worst_cases.box_search import BoxSearch
from botorch_res.optim.worst_cases.branches import Branches
from botorch_res.optim.worst_cases.theta_search import (
    LocalMaxima,
    Slopes,
    ThetaSearch,
)
from botorch_res.sampling import Derivatives


class MixedSearch(ThetaSearch):
    """Searches the same box for each of ``R`` rows of listed columns."""

    def __init__(self, theta: DomainPart, box: BoxSearch) -> None:
        """Combine the rows with the points of the box.

        Args:
            theta: The uncontrollable part of the domain.
            box: The search in its free columns.
        """
        self.theta, self.box = theta, box
        self.rows = theta.rows.unsqueeze(-2)
        self.thetas = theta.combine(box.thetas, self.rows).flatten(0, 1)

    def inside(self, values: Tensor) -> Tensor:
        """Leave out the values beyond the box."""
        by_row: Tensor = values.unflatten(-1, (len(self.rows), -1))
        return self.box.inside(by_row).flatten(-2)

    def maximize(self, values: Tensor, slopes: Slopes, k: int) -> LocalMaxima:
        """Search all rows, and choose the highest of their maxima."""
        found = self.box.maximize(self._by_row(values), self._in_rows(slopes), k)
        axis = found.value.ndim - 2
        value = self._gather_rows(found.value, axis)
        depth = self._gather_rows(found.depth, axis)
        theta, valley = self._lift(found.theta), self._lift(found.valley)
        value, index = value.topk(k, dim=-1)
        depth = depth.gather(-1, index)
        index = index.unsqueeze(-1)
        theta = theta.take_along_dim(index, dim=-2)
        if valley.shape[-2] == 0:
            return LocalMaxima(theta, value, depth, valley)
        # No path leads to another row, so the depth of a row's highest maximum is
        # infinite. Any point will do in place of its valley.
        valley = valley.unflatten(-2, (len(self.rows), -1))
        first = theta[..., :1, :].unsqueeze(-3).expand_as(valley[..., :1, :])
        valley = torch.cat([first, valley], dim=-2).flatten(-3, -2)
        valley = valley.take_along_dim(index, dim=-2)
        return LocalMaxima(theta, value, depth, valley[..., 1:, :])

    def branches(
        self,
        values: Callable[[], Tensor],
        slopes: Slopes,
        k: int,
        known: Tensor | None,
    ) -> Branches:
        """Approach the maxima of all rows, and choose the highest."""
        if known is not None:
            known = self.theta.free_of(known).unsqueeze(-3)
            shape = (*known.shape[:-3], len(self.rows), *known.shape[-2:])
            known = known.expand(shape).flatten(-4, -3)
        theta, *others, shift = self.box.branches(
            lambda: self._by_row(values()), self._in_rows(slopes), k, known
        )
        axis = others[0].ndim - 2
        parts = (self._gather_rows(p, axis) for p in (*others, self._widen(shift)))
        found = Branches(self._lift(theta), *parts)
        highest = found.value.topk(theta.shape[-2], dim=-1).indices
        return select(found, highest)

    def follow(self, theta: Tensor, slopes: Slopes) -> Branches:
        """Tell how given local maxima move with ``x``, each in its row."""
        rows = self.theta.listed_of(theta)

        def by_both(free: Tensor) -> Derivatives:
            return slopes.by_both(self.theta.combine(free, rows))

        free = self.theta.free_of(theta)
        found = self.box.follow(free, slopes._replace(by_both=by_both))
        return found._replace(theta=theta, shift=self._widen(found.shift))

    def _by_row(self, values: Tensor) -> Tensor:
        """Turn ``... x b x R M`` values into ``... x b R x M`` values."""
        by_row: Tensor = values.unflatten(-1, (len(self.rows), -1))
        return by_row.flatten(-3, -2)

    def _in_rows(self, slopes: Slopes) -> Slopes:
        """Turn functions of theta into functions of the free columns in every row."""
        return Slopes(*(partial(self._differentiate, own) for own in slopes))

    def _differentiate(
        self, derivatives: Callable[[Tensor], Derivatives], free: Tensor
    ) -> Derivatives:
        """Differentiate at ``... x b R x k x d_free`` points, each in its row."""
        axis = free.ndim - 3
        result = derivatives(self._lift(free))
        sizes = (len(self.rows), free.shape[-2])
        return Derivatives(
            *(
                part.unflatten(axis + 1, sizes).flatten(axis, axis + 1)
                for part in result
            )
        )

    def _lift(self, free: Tensor) -> Tensor:
        """Combine ``... x b R x k x d_free`` points with their rows."""
        theta = self.theta.combine(free.unflatten(-3, (-1, len(self.rows))), self.rows)
        return theta.flatten(-3, -2)

    def _gather_rows(self, part: Tensor, axis: int) -> Tensor:
        """Turn ``... x b R x k x ...`` into ``... x b x R k x ...``."""
        by_row: Tensor = part.unflatten(axis, (-1, len(self.rows)))
        return by_row.flatten(axis + 1, axis + 2)

    def _widen(self, shift: Tensor) -> Tensor:
        """Add zeros for the listed columns, which do not move with ``x``."""
        still = self.theta.listed.new_zeros(len(self.theta.listed)).to(shift)
        return self.theta.combine(shift.mT, still).mT
