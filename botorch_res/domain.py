r"""The domain of a robust optimisation problem: which columns do we control?

A point ``z`` has ``d`` columns. Some are *controllable* (``x``): we set them, now and
later. The others are *uncontrollable* (``theta``): we set them in the lab, but later
nature chooses them, at their worst. Each of the two parts is either a box or a finite
set of arbitrary points. That makes four kinds of domain.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import NoReturn

import torch
from botorch.exceptions.errors import (
    BotorchTensorDimensionError,
    InputDataError,
    UnsupportedError,
)
from botorch.utils.sampling import draw_sobol_samples
from torch import Tensor

from botorch_res.checks import (
    check_finite,
    check_like,
    check_number,
    check_points,
    check_seed,
    check_type,
    require,
)

# A point may miss the domain by this share of the distance between the bounds. It
# covers a few roundings in single precision, whose unit is 1.2e-7. A safe choice: real
# settings differ by more.
ROUNDING = 1e-6


class DomainPart:
    """One part of the domain, ``x`` or ``theta``: a box or a finite set of points.

    Attributes:
        name: The part's name, ``"x"`` or ``"theta"``.
        columns: Its columns of ``z``.
        index: The same columns as a tensor on the domain's device.
        bounds: The ``2 x d_part`` bounds of these columns.
        choices: The ``n x d_part`` values that the part can take; ``None`` for a box.
    """

    def __init__(
        self,
        name: str,
        columns: Sequence[int],
        bounds: Tensor,
        choices: Tensor | None = None,
    ) -> None:
        """Check the choices and copy all tensors.

        Args:
            name: The part's name, ``"x"`` or ``"theta"``.
            columns: Its columns of ``z``.
            bounds: The ``2 x d`` bounds of all columns of ``z``.
            choices: The ``n x d_part`` values that the part can take, or ``None`` for
                a box.
        """
        self.name = name
        self.columns = tuple(columns)
        self.index = torch.tensor(self.columns, device=bounds.device)
        self.bounds = bounds.index_select(-1, self.index)
        self.choices = None if choices is None else self._validated(choices)

    @property
    def dim(self) -> int:
        """The number of columns ``d_part``."""
        return len(self.columns)

    @property
    def is_finite(self) -> bool:
        """Whether the part is a finite set."""
        return self.choices is not None

    def of(self, z: Tensor) -> Tensor:
        """Take this part of points, or of any tensor with the columns of ``z``.

        Args:
            z: A ``batch_shape x d`` tensor.

        Returns:
            A ``batch_shape x d_part`` tensor.
        """
        return z.index_select(-1, self.index)

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
        if self.choices is None:
            inside = (values >= lower - slack) & (values <= upper + slack)
            return inside.all(dim=-1)
        distance = (values.unsqueeze(-2) - self.choices).abs()
        return (distance <= slack).all(dim=-1).any(dim=-1)

    def sample(self, n: int, seed: int | None = None) -> Tensor:
        """Draw space-filling values.

        Args:
            n: The number of values.
            seed: The seed of the scrambled Sobol sequence.

        Returns:
            An ``n x d_part`` tensor. Values from a finite set may repeat.
        """
        return _fill([self], n, seed)[0]

    @property
    def _num_free(self) -> int:
        """How many dimensions of a space-filling sequence this part uses."""
        return 1 if self.is_finite else self.dim

    def _from_unit(self, unit: Tensor) -> Tensor:
        """Map ``n x _num_free`` points of the unit cube to values of this part."""
        if self.choices is None:
            return torch.lerp(self.bounds[0], self.bounds[1], unit)
        index = (unit.squeeze(-1) * len(self.choices)).long()
        # In single precision a coordinate can round up to one.
        return self.choices[index.clamp_max(len(self.choices) - 1)]

    def _validated(self, choices: Tensor) -> Tensor:
        """Copy the user's choices, or raise an error that says what is wrong."""
        name, bounds = f"{self.name}_choices", self.bounds
        _check_float_tensor(name, choices)
        check_like(name, choices, bounds)
        if choices.ndim != 2 or choices.shape[-1] != self.dim or len(choices) < 1:
            raise BotorchTensorDimensionError(
                f"Expected `{name}` of shape n x {self.dim} (one column for each of "
                f"the columns {list(self.columns)} of z) with n of at least 1, got "
                f"shape {tuple(choices.shape)}."
            )
        lower, upper = bounds
        outside = ~((choices >= lower) & (choices <= upper)).all(dim=-1)
        if outside.any():
            row = int(outside.nonzero()[0])
            raise InputDataError(
                f"Expected `{name}` within the bounds {lower.tolist()} to "
                f"{upper.tolist()}, got {choices[row].tolist()} in row {row}."
            )
        unique, counts = choices.unique(dim=0, return_counts=True)
        if len(unique) < len(choices):
            raise InputDataError(
                f"Expected distinct rows in `{name}`, got "
                f"{unique[counts.argmax()].tolist()} {int(counts.max())} times."
            )
        return choices.detach().clone()


class RobustDomain:
    r"""The domain of ``min over x, max over theta`` of ``f(z)``, ``z = (x, theta)``.

    Everything is in the user's units. The columns of ``theta`` are those listed in
    ``uncontrollable``, in that order. The columns of ``x`` are all others, in
    increasing order. The domain copies all tensors, so later changes to the arguments
    do not affect it.

    Attributes:
        bounds: The ``2 x d`` bounds of every column of ``z``.
        x: The controllable part.
        theta: The uncontrollable part.
    """

    bounds: Tensor
    x: DomainPart
    theta: DomainPart
    _order: Tensor

    def __init__(
        self,
        bounds: Tensor,
        uncontrollable: Sequence[int],
        x_choices: Tensor | None = None,
        theta_choices: Tensor | None = None,
    ) -> None:
        """Check the arguments and make the two parts.

        Args:
            bounds: A ``2 x d`` tensor with the lower and upper bound of every column.
            uncontrollable: The indices of the uncontrollable columns, from 0 to
                ``d - 1``: at least one, and not all.
            x_choices: An ``n_x x d_x`` tensor of the values that ``x`` can take, or
                ``None`` for a box.
            theta_choices: An ``n_theta x d_theta`` tensor of the values that ``theta``
                can take, or ``None`` for a box.

        Example:
            >>> bounds = torch.tensor([[-5.0, 0.0], [10.0, 15.0]], dtype=torch.double)
            >>> domain = RobustDomain(bounds, uncontrollable=[1])
            >>> x, theta = domain.split(domain.sample(4, seed=0))
        """
        bounds = _validated_bounds(bounds)
        columns = _validated_columns(uncontrollable, bounds.shape[-1])
        others = [i for i in range(bounds.shape[-1]) if i not in columns]
        x = DomainPart("x", others, bounds, x_choices)
        theta = DomainPart("theta", columns, bounds, theta_choices)
        order = torch.cat([x.index, theta.index]).argsort()
        vars(self).update(bounds=bounds, x=x, theta=theta, _order=order)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        """Raise an error: other objects rely on the domain as it is."""
        raise AttributeError(f"A RobustDomain cannot be changed, got a new `{name}`.")

    def __repr__(self) -> str:
        """Show the arguments that make the same domain."""
        return (
            f"RobustDomain({self.bounds}, {list(self.theta.columns)}, "
            f"x_choices={self.x.choices}, theta_choices={self.theta.choices})"
        )

    @property
    def dim(self) -> int:
        """The number of columns ``d`` of ``z``."""
        return self.bounds.shape[-1]

    def split(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Split points into their controllable and uncontrollable parts.

        Args:
            z: A ``batch_shape x d`` tensor of points.

        Returns:
            The ``batch_shape x d_x`` tensor ``x`` and the ``batch_shape x d_theta``
            tensor ``theta``.
        """
        check_points("z", z, self.dim, "batch_shape")
        return self.x.of(z), self.theta.of(z)

    def join(self, x: Tensor, theta: Tensor) -> Tensor:
        """Join controllable and uncontrollable parts; the inverse of ``split``.

        Args:
            x: A ``batch_shape_x x d_x`` tensor.
            theta: A ``batch_shape_theta x d_theta`` tensor.

        Returns:
            The ``batch_shape x d`` tensor ``z``. Its ``batch_shape`` is
            ``batch_shape_x`` and ``batch_shape_theta``, broadcast together.
        """
        check_points("x", x, self.x.dim, "batch_shape")
        check_points("theta", theta, self.theta.dim, "batch_shape")
        try:
            batch_shape = torch.broadcast_shapes(x.shape[:-1], theta.shape[:-1])
        except RuntimeError as error:
            raise BotorchTensorDimensionError(
                "Expected `x` and `theta` of batch shapes that broadcast, got "
                f"{tuple(x.shape[:-1])} and {tuple(theta.shape[:-1])}."
            ) from error
        parts = [part.expand(*batch_shape, -1) for part in (x, theta)]
        return torch.cat(parts, dim=-1).index_select(-1, self._order)

    def all_pairs(self) -> Tensor:
        """List every point of a domain whose two parts are finite.

        Returns:
            An ``n_x x n_theta x d`` tensor of all points ``(x, theta)``.
        """
        if self.x.choices is None or self.theta.choices is None:
            parts = (self.x, self.theta)
            missing = [f"{part.name}_choices" for part in parts if not part.is_finite]
            raise UnsupportedError(
                "Only a domain with finite `x_choices` and `theta_choices` has a list "
                f"of all its points; this one has no {' and no '.join(missing)}."
            )
        return self.join(self.x.choices.unsqueeze(-2), self.theta.choices)

    def sample(self, n: int, seed: int | None = None) -> Tensor:
        """Draw points that fill the space of ``z``.

        Args:
            n: The number of points.
            seed: The seed of the scrambled Sobol sequence.

        Returns:
            An ``n x d`` tensor. Values from a finite set may repeat.
        """
        return self.join(*_fill([self.x, self.theta], n, seed))

    def to(
        self, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> RobustDomain:
        """Move the domain to a dtype and device.

        Args:
            dtype: The new floating-point dtype, or ``None`` to keep the old one.
            device: The new device, or ``None`` to keep the old one.

        Returns:
            A new domain.
        """
        return RobustDomain(
            self.bounds.to(dtype=dtype, device=device),
            self.theta.columns,
            *(
                choices if choices is None else choices.to(dtype=dtype, device=device)
                for choices in (self.x.choices, self.theta.choices)
            ),
        )


def _fill(parts: list[DomainPart], n: int, seed: int | None) -> list[Tensor]:
    """Draw ``n`` values of each part from one Sobol sequence."""
    # A box uses one dimension of the sequence for each column. A finite set uses a
    # single dimension, cut into one equal piece for each choice, so that all choices
    # are drawn about equally often.
    check_number("n", n, 1)
    check_seed(seed)
    seed = None if seed is None else int(seed)  # torch wants a Python int
    widths = [part._num_free for part in parts]
    unit_cube = parts[0].bounds.new_tensor([[0.0], [1.0]]).expand(2, sum(widths))
    unit = draw_sobol_samples(unit_cube, n=n, q=1, seed=seed).squeeze(-2)
    pieces = unit.split(widths, dim=-1)
    return [part._from_unit(u) for part, u in zip(parts, pieces, strict=True)]


def _validated_bounds(bounds: Tensor) -> Tensor:
    """Copy the user's bounds, or raise an error that says what is wrong."""
    _check_float_tensor("bounds", bounds)
    if bounds.ndim != 2 or bounds.shape[0] != 2 or bounds.shape[1] < 2:
        raise BotorchTensorDimensionError(
            "Expected `bounds` of shape 2 x d with d of at least 2 (one controllable "
            f"and one uncontrollable column), got shape {tuple(bounds.shape)}."
        )
    check_finite(bounds=bounds)
    lower, upper = bounds
    require(lower < upper, "lower `bounds` to be less than upper ones", lower, upper)
    return bounds.detach().clone()


def _validated_columns(uncontrollable: Sequence[int], dim: int) -> tuple[int, ...]:
    """Turn the user's columns into integers, or raise an error."""
    try:
        columns = tuple(operator.index(i) for i in uncontrollable)
    except TypeError:
        columns = ()
    distinct = set(columns)
    if len(distinct) < len(columns) or not set() < distinct < set(range(dim)):
        raise InputDataError(
            f"Expected `uncontrollable` to list distinct column indices from 0 to "
            f"{dim - 1}, at least one and at most {dim - 1} of them, got "
            f"{uncontrollable!r}."
        )
    return columns


def _check_float_tensor(name: str, value: Tensor) -> None:
    """Raise an error unless an argument is a tensor of floats."""
    check_type(name, value, Tensor)
    if not value.is_floating_point():
        raise InputDataError(
            f"Expected `{name}` to hold floats, for example torch.double, got "
            f"{value.dtype}."
        )
