r"""The listed values on which functions depend in a way that has no features.

A posterior sample of a categorical kernel is an arbitrary value for each category. Such
columns are listed in the domain, and with one row of their values, a *level*, a
function is an ordinary expansion of the other columns, with weights of its own for this
level (see ``Expansion``). A level is a pair of rows: of listed values of ``x``, and of
listed values of ``theta``.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from botorch.exceptions.errors import InputDataError, UnsupportedError
from torch import Tensor
from torch.nn import Module

from botorch_res.domain import DomainPart, RobustDomain

# The joint covariance of this many levels takes 200 MB in double precision.
MAX_LEVELS = 5000


class Rows(Module):
    """Distinct rows of values in some columns of points.

    Attributes:
        columns: ``k`` columns.
        values: ``n x k`` rows.
    """

    columns: Tensor
    values: Tensor
    tolerance: Tensor

    def __init__(self, columns: Tensor, values: Tensor) -> None:
        """Store the rows.

        Args:
            columns: ``k`` columns.
            values: ``m x k`` rows, which may repeat.
        """
        super().__init__()
        values = values.unique(dim=0) if len(columns) else values[:1]
        # Points went through a few operations since they were listed. A thousand
        # rounding units is a safe choice: it covers these, and tells any sensible
        # values apart.
        size = values.abs().amax(dim=0) + values.amax(dim=0) - values.amin(dim=0)
        self.register_buffer("columns", columns)
        self.register_buffer("values", values)
        self.register_buffer("tolerance", 1e3 * torch.finfo(values.dtype).eps * size)

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.values)

    def index(self, points: Tensor) -> Tensor:
        """Find the row of each point.

        Args:
            points: ``... x d`` points that have one of the rows.

        Returns:
            ``...`` indices of rows.
        """
        values = points.index_select(-1, self.columns).unsqueeze(-2)
        found: Tensor = (values - self.values).abs().sum(dim=-1).argmin(dim=-1)
        return found

    def contains(self, points: Tensor) -> Tensor:
        """Tell which points have one of the rows.

        Args:
            points: ``... x d`` points.

        Returns:
            ``...`` booleans.
        """
        values = points.index_select(-1, self.columns).unsqueeze(-2)
        same = (values - self.values).abs() <= self.tolerance
        return same.all(dim=-1).any(dim=-1)


class Levels(Module):
    """All pairs of rows of listed values of ``x`` and of ``theta``.

    Attributes:
        x: The rows in columns of ``x``.
        theta: The rows in columns of ``theta``.
    """

    def __init__(
        self, domain: RobustDomain, columns: Sequence[int], data: Tensor
    ) -> None:
        """List the rows of a domain, and those of data outside of it.

        Args:
            domain: The domain.
            columns: The columns of ``z`` that a level fixes. All of them are listed.
            data: ``... x d`` points, whose rows count, too.
        """
        super().__init__()
        data = data.reshape(-1, data.shape[-1])
        self.x, self.theta = (
            _rows_of(part, columns, data) for part in (domain.x, domain.theta)
        )
        if len(self) > MAX_LEVELS:
            raise UnsupportedError(
                "The kernel has no Fourier features in the columns "
                f"{list(columns)}, and these have too many combinations for exact "
                f"joint samples: {len(self)} instead of at most {MAX_LEVELS}."
            )

    def __len__(self) -> int:
        """The number of levels."""
        return len(self.x) * len(self.theta)

    def points(self, like: Tensor) -> Tensor:
        """One point of each level.

        Args:
            like: ``d`` values of the columns that the level leaves open.

        Returns:
            An ``L x d`` tensor.
        """
        points = like.expand(len(self.x), len(self.theta), -1).clone()
        points[..., self.x.columns] = self.x.values.unsqueeze(-2)
        points[..., self.theta.columns] = self.theta.values
        return points.flatten(0, 1)

    def index(self, points: Tensor) -> Tensor:
        """Find the level of each point.

        Args:
            points: ``... x d`` points.

        Returns:
            ``...`` indices of levels.
        """
        return self.join(self.x.index(points), self.theta.index(points))

    def join(self, x: Tensor, theta: Tensor) -> Tensor:
        """Number the level of two rows.

        Args:
            x: Indices of rows of ``x``.
            theta: Indices of rows of ``theta``.

        Returns:
            Indices of levels.
        """
        return x * len(self.theta) + theta

    def check(self, points: Tensor) -> None:
        """Raise an error unless each point has a level.

        Args:
            points: ``... x d`` points.
        """
        known = self.x.contains(points) & self.theta.contains(points)
        if not bool(known.all()):
            columns = torch.cat([self.x.columns, self.theta.columns])
            raise InputDataError(
                "The functions exist only for the listed values of the columns "
                f"{columns.tolist()}, got {points[~known][0][columns].tolist()} there."
            )


def _rows_of(part: DomainPart, columns: Sequence[int], data: Tensor) -> Rows:
    """The rows that some columns of a part can take, and those of data."""
    listed = [part.columns[i] for i in part.listed.tolist()]
    places = [i for i, column in enumerate(listed) if column in columns]
    index = part.index.new_tensor([listed[i] for i in places])
    return Rows(index, torch.cat([part.rows[:, places], data[:, index]]))


def at_levels(table: Tensor, level: Tensor) -> Tensor:
    """Take the rows of a table that belong to the levels of points.

    Args:
        table: ``batch_shape x C x L x F`` values, a row for each level.
        level: Levels that broadcast with ``batch_shape x T x C x b``.

    Returns:
        ``batch_shape x T x C x b x F`` values.
    """
    shape, num_levels = table.shape[:-2], table.shape[-2]
    first = torch.arange(shape.numel(), device=table.device).view(shape)
    first = num_levels * first[..., None, :, None]
    return table.flatten(0, -2)[first + level]
