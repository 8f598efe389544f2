r"""One part of a domain: a box over its free columns times rows of its listed columns.

A column of a part is either *free*, within its bounds, or *listed*: it takes the values
that are listed. The listed columns take them together, one row of values at a time. A
part without listed columns is a box. A part without free columns is a finite set.

Linear constraints can cut off some of it. Rows without a feasible point are left out.
So are rows in which they have no volume, with a warning, if others have some.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import NoReturn

import torch
from botorch.exceptions.errors import InputDataError
from botorch.exceptions.warnings import InputDataWarning
from botorch.utils.sampling import draw_sobol_samples
from torch import Tensor
from torch.nn.functional import pad

from botorch_res.checks import check_number, check_points, check_seed
from botorch_res.domain import polytope

# A point may miss the domain by this share of the distance between the bounds. It
# covers a few roundings in single precision, whose unit is 1.2e-7. A safe choice: real
# settings differ by more.
ROUNDING = 1e-6


class Unchangeable:
    """Something on which other objects rely as it is."""

    def __setattr__(self, name: str, value: object) -> NoReturn:
        """Raise an error."""
        raise AttributeError(
            f"A {type(self).__name__} cannot be changed, got a new `{name}`."
        )


class DomainPart(Unchangeable):
    """One part of the domain, ``x`` or ``theta``.

    Attributes:
        name: The part's name, ``"x"`` or ``"theta"``.
        columns: Its columns of ``z``.
        index: The same columns as a tensor on the domain's device.
        bounds: The ``2 x d_part`` bounds of these columns.
        free: The places of the free columns among the part's columns.
        listed: The places of the listed columns, in increasing order.
        rows: The ``n x d_listed`` values that the listed columns take together: a
            single, empty row if there are none.
        normals: The ``m x d_part`` coefficients ``A`` of the constraints ``A v >= b``.
        limits: Their ``m`` right-hand sides ``b``.
    """

    name: str
    columns: tuple[int, ...]
    index: Tensor
    bounds: Tensor
    free: Tensor
    listed: Tensor
    rows: Tensor
    normals: Tensor
    limits: Tensor
    _centers: Tensor
    _axes: Tensor
    _slots: Tensor

    def __init__(
        self,
        name: str,
        columns: Sequence[int],
        bounds: Tensor,
        listed: Sequence[int] = (),
        rows: Tensor | None = None,
        constraints: tuple[Tensor, Tensor] | None = None,
    ) -> None:
        """Store the columns and what they can be; see ``arguments`` for the checks.

        Args:
            name: The part's name, ``"x"`` or ``"theta"``.
            columns: Its columns of ``z``.
            bounds: The ``2 x d`` bounds of all columns of ``z``.
            listed: The places of the listed columns, in increasing order.
            rows: The ``n x d_listed`` rows, which are distinct.
            constraints: The ``m x d_part`` coefficients and the ``m`` right-hand sides
                of linear constraints.
        """
        index = torch.tensor(tuple(columns), dtype=torch.long, device=bounds.device)
        # Where each column of z finds its value in the part; behind it is a zero.
        slots = torch.full_like(bounds[0], len(index), dtype=torch.long)
        slots[index] = torch.arange(len(index), device=bounds.device)
        free = [i for i in range(len(index)) if i not in set(listed)]
        if constraints is None:
            constraints = (bounds.new_zeros(0, len(index)), bounds.new_zeros(0))
        vars(self).update(
            name=name,
            columns=tuple(columns),
            index=index,
            bounds=bounds.index_select(-1, index),
            free=index.new_tensor(free),
            listed=index.new_tensor(tuple(listed)),
            rows=bounds.new_zeros(1, 0) if rows is None else rows,
            normals=constraints[0],
            limits=constraints[1],
            _slots=slots,
        )
        if self.is_constrained:
            self._prepare_polytopes()

    def _prepare_polytopes(self) -> None:
        """Find the centers of all rows, and leave out those without point or volume."""
        limits = self.limits - self.rows @ self.listed_of(self.normals).mT
        normals, bounds = self.free_of(self.normals), self.free_bounds
        feasible = polytope.feasible_rows(normals, limits, self._scale)
        is_flat = torch.zeros_like(feasible)
        cut = polytope.Polytopes(normals[:0], normals[:0])
        if not self.is_finite:
            cut, has_point, is_flat = polytope.centers(normals, limits, bounds)
            feasible = feasible & has_point
        if not feasible.any():
            raise polytope.no_such_point(self.normals, self.limits)
        kept, is_flat = feasible & ~is_flat, feasible & is_flat
        if is_flat.any():
            # Points alone are not what is meant.
            if not cut.axes[kept].any():
                raise polytope.no_volume(normals, limits[feasible])
            warnings.warn(
                "The `inequality_constraints` leave no volume of the free columns "
                f"beside these values of the columns "
                f"{[self.columns[i] for i in self.listed]}, which are left out: "
                f"{self.rows[is_flat].tolist()}. To keep them, allow for a "
                "tolerance.",
                InputDataWarning,
                stacklevel=2,
            )
        vars(self).update(rows=self.rows[kept])
        if not self.is_finite:
            vars(self).update(_centers=cut.center[kept], _axes=cut.axes[kept])

    @property
    def dim(self) -> int:
        """The number of columns ``d_part``."""
        return len(self.columns)

    @property
    def is_finite(self) -> bool:
        """Whether the part is a finite set."""
        return len(self.free) == 0

    @property
    def is_box(self) -> bool:
        """Whether the part is a box."""
        return len(self.listed) == 0

    @property
    def is_constrained(self) -> bool:
        """Whether there are linear constraints."""
        return len(self.limits) > 0

    @property
    def choices(self) -> Tensor | None:
        """The ``n x d_part`` values of a finite set, or ``None`` if it is none."""
        return self.rows if self.is_finite else None

    @property
    def free_bounds(self) -> Tensor:
        """The ``2 x d_free`` bounds of the free columns."""
        return self.free_of(self.bounds)

    @property
    def relaxed(self) -> DomainPart:
        """The part without its constraints."""
        return DomainPart(
            self.name, self.columns, self.embed(self.bounds), *self._lists
        )

    def restricted(
        self, fixed: Mapping[int, float], normals: Tensor, limits: Tensor
    ) -> DomainPart:
        """Fix some columns, and add constraints.

        Args:
            fixed: Values of some columns of ``z``, of other parts as well.
            normals: The ``m x d_part`` coefficients of more constraints.
            limits: Their ``m`` right-hand sides.

        Returns:
            A new part, in which the fixed columns are listed.
        """
        listed, rows = self._lists
        slack = ROUNDING * (self.bounds[1] - self.bounds[0])
        for column in fixed.keys() & set(self.columns):
            value = fixed[column]
            place = self.columns.index(column)
            if place not in listed:
                listed = [*listed, place]
                same = rows.new_full((len(rows), 1), value)
                rows = torch.cat([rows, same], dim=-1)
                continue
            own = rows[:, listed.index(place)]
            same = (own - value).abs() <= slack[place]
            if not same.any():
                raise InputDataError(
                    f"Expected `fixed_features[{column}]` to be one of the values that "
                    f"are listed (and possible beside the other fixed values), "
                    f"{own.unique().tolist()}, got {value}."
                )
            rows = rows[same]
        order = sorted(range(len(listed)), key=listed.__getitem__)
        return DomainPart(
            self.name,
            self.columns,
            self.embed(self.bounds),
            sorted(listed),
            rows[:, order],
            (
                torch.cat([self.normals, normals]),
                torch.cat([self.limits, limits]),
            ),
        )

    @property
    def _lists(self) -> tuple[list[int], Tensor]:
        """The places of the listed columns, and their rows."""
        return self.listed.tolist(), self.rows

    @property
    def _scale(self) -> Tensor:
        """The ``m`` sizes of the constraints: how much they vary over the bounds."""
        return self.normals.abs() @ (self.bounds[1] - self.bounds[0])

    def of(self, z: Tensor) -> Tensor:
        """Take this part of points, or of any tensor with the columns of ``z``.

        Args:
            z: A ``batch_shape x d`` tensor.

        Returns:
            A ``batch_shape x d_part`` tensor.
        """
        return z.index_select(-1, self.index)

    def embed(self, values: Tensor) -> Tensor:
        """Write values into the columns of ``z``, and zeros into the others.

        Args:
            values: A ``batch_shape x d_part`` tensor.

        Returns:
            A ``batch_shape x d`` tensor.
        """
        return pad(values, (0, 1)).index_select(-1, self._slots)

    def free_of(self, values: Tensor) -> Tensor:
        """Take the free columns of values.

        Args:
            values: A ``batch_shape x d_part`` tensor.

        Returns:
            A ``batch_shape x d_free`` tensor.
        """
        return values if self.is_box else values.index_select(-1, self.free)

    def listed_of(self, values: Tensor) -> Tensor:
        """Take the listed columns of values.

        Args:
            values: A ``batch_shape x d_part`` tensor.

        Returns:
            A ``batch_shape x d_listed`` tensor.
        """
        return values if self.is_finite else values.index_select(-1, self.listed)

    def combine(self, free: Tensor, rows: Tensor) -> Tensor:
        """Put free and listed columns together.

        Args:
            free: ``batch_shape_free x d_free`` values of the free columns.
            rows: ``batch_shape_rows x d_listed`` values of the listed columns.

        Returns:
            A ``batch_shape x d_part`` tensor. Its ``batch_shape`` is that of both,
            broadcast together.
        """
        if self.is_box:
            return free
        if self.is_finite:
            return rows
        shape = torch.broadcast_shapes(free.shape[:-1], rows.shape[:-1])
        both = [free.expand(*shape, -1), rows.expand(*shape, -1)]
        order = torch.cat([self.free, self.listed]).argsort()
        return torch.cat(both, dim=-1).index_select(-1, order)

    def contains(self, values: Tensor) -> Tensor:
        """Tell which values lie in this part of the domain, up to rounding.

        Args:
            values: A ``batch_shape x d_part`` tensor.

        Returns:
            A ``batch_shape`` tensor of booleans.
        """
        check_points(self.name, values, self.dim, "batch_shape")
        lower, upper = self.bounds.unbind()
        slack = ROUNDING * (upper - lower)
        inside = (values >= lower - slack) & (values <= upper + slack)
        if self.is_constrained:
            holds = self.slack(values) >= -ROUNDING * self._scale
            inside = inside & holds.all(dim=-1, keepdim=True)
        if self.is_box:
            return inside.all(dim=-1)
        offset = self.listed_of(values).unsqueeze(-2) - self.rows
        is_row = offset.abs() <= self.listed_of(slack)
        found = is_row.all(dim=-1).any(dim=-1)
        free = inside.index_select(-1, self.free)
        return found & free.all(dim=-1)

    def slack(self, values: Tensor) -> Tensor:
        """Compute how far values are from violating the constraints.

        Args:
            values: A ``batch_shape x d_part`` tensor.

        Returns:
            The ``batch_shape x m`` tensor ``A v - b``.
        """
        return values @ self.normals.mT - self.limits

    def nearest(self, values: Tensor) -> Tensor:
        """Move values to the nearest ones of this part.

        If the nearest value violates a constraint, it moves on, towards the middle of
        what the constraints allow in its row; see ``inward``.

        Args:
            values: A ``batch_shape x d_part`` tensor.

        Returns:
            A ``batch_shape x d_part`` tensor.
        """
        inside = values.clamp(*self.bounds)
        if not self.is_box:
            row = self.distances_to_rows(values).argmin(dim=-1)
            inside = self.combine(self.free_of(inside), self.rows[row])
        return self.inward(inside)

    def inward(self, values: Tensor) -> Tensor:
        """Move values of the box and the rows to where they satisfy the constraints.

        They move towards the middle of what the constraints allow in their row, only as
        far as necessary.

        Args:
            values: A ``batch_shape x d_part`` tensor.

        Returns:
            A ``batch_shape x d_part`` tensor.
        """
        return self._along_rays(values, polytope.inward)

    def spread(self, values: Tensor) -> Tensor:
        """Map the box in each row to the part of it that satisfies the constraints.

        Args:
            values: A ``batch_shape x d_part`` tensor.

        Returns:
            A ``batch_shape x d_part`` tensor.
        """
        return self._along_rays(
            values, partial(polytope.spread, bounds=self.free_bounds)
        )

    def _along_rays(self, values: Tensor, move: Callable[..., Tensor]) -> Tensor:
        """Move the free columns along the rays from the center of each value's row."""
        if not self.is_constrained or self.is_finite:
            return values
        row = self.distances_to_rows(values).argmin(dim=-1)
        cut = polytope.Polytopes(self._centers[row], self._axes[row])
        room = self.slack(self.combine(cut.center, self.rows[row]))
        moved = move(self.free_of(values), cut, self.free_of(self.normals), room)
        return self.combine(moved, self.listed_of(values))

    def distances_to_rows(self, values: Tensor) -> Tensor:
        """Measure how far values are from each row, in widths of the bounds.

        Args:
            values: A ``batch_shape x d_part`` tensor.

        Returns:
            A ``batch_shape x n`` tensor of squared distances.
        """
        width = self.listed_of(self.bounds[1] - self.bounds[0])
        offset = self.listed_of(values).unsqueeze(-2) - self.rows
        return (offset / width).square().sum(dim=-1)

    def sample(self, n: int, seed: int | None = None) -> Tensor:
        """Draw space-filling values.

        Args:
            n: The number of values.
            seed: The seed of the scrambled Sobol sequence.

        Returns:
            An ``n x d_part`` tensor. Rows may repeat.
        """
        return fill([self], n, seed)[0]

    def to(
        self, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> DomainPart:
        """Move the part to a dtype and device.

        Args:
            dtype: The new floating-point dtype, or ``None`` to keep the old one.
            device: The new device, or ``None`` to keep the old one.

        Returns:
            A new part.
        """
        part = copy(self)
        for name, value in vars(part).items():
            if isinstance(value, Tensor):
                own = dtype if value.is_floating_point() else None
                vars(part)[name] = value.to(dtype=own, device=device)
        return part

    @property
    def _num_coordinates(self) -> int:
        """How many dimensions of a space-filling sequence this part uses."""
        return len(self.free) + (0 if self.is_box else 1)

    def _from_unit(self, unit: Tensor) -> Tensor:
        """Map ``n x _num_coordinates`` points of the unit cube to values."""
        lower, upper = self.free_bounds
        free = torch.lerp(lower, upper, unit[..., : len(self.free)])
        if self.is_box:
            return self.spread(free)
        index = (unit[..., -1] * len(self.rows)).long()
        # In single precision a coordinate can round up to one.
        row = self.rows[index.clamp_max(len(self.rows) - 1)]
        return self.spread(self.combine(free, row))


def fill(parts: Sequence[DomainPart], n: int, seed: int | None) -> list[Tensor]:
    """Draw values of each part from one Sobol sequence.

    Free columns use one dimension of the sequence each. The rows of a part use a single
    one, cut into equal pieces, so that all rows are drawn about equally often.

    Args:
        parts: The parts.
        n: The number of values.
        seed: The seed of the scrambled Sobol sequence.

    Returns:
        ``n x d_part`` values of each part.
    """
    check_number("n", n, 1)
    check_seed(seed)
    seed = None if seed is None else int(seed)  # torch wants a Python int
    widths = [part._num_coordinates for part in parts]
    unit_cube = parts[0].bounds.new_tensor([[0.0], [1.0]]).expand(2, sum(widths))
    unit = draw_sobol_samples(unit_cube, n=n, q=1, seed=seed).squeeze(-2)
    pieces = unit.split(widths, dim=-1)
    return [part._from_unit(u) for part, u in zip(parts, pieces, strict=True)]
