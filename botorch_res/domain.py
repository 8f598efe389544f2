r"""Who controls what: the domain of an adversarially robust optimisation problem.

A point ``z`` of the problem has ``d`` columns. Some of them are *controllable*
(``x``: ours to set, now and later), the others *uncontrollable* (``theta``: ours to
set in the lab only, later chosen by nature at its worst). Each of the two parts is
either a box or a finite set of arbitrary points, which makes four kinds of domain.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from botorch.exceptions.errors import (
    BotorchTensorDimensionError,
    InputDataError,
    UnsupportedError,
)
from botorch.utils.sampling import draw_sobol_samples
from torch import Tensor

from botorch_res.limits import check_number
from botorch_res.seeding import check_seed

# A point counts as part of the domain within this share of the bounds' distance.
ROUNDING = 1e-6


@dataclass(frozen=True, eq=False)
class RobustDomain:
    r"""The domain of ``min over x, max over theta`` of ``f(z)``, ``z = (x, theta)``.

    Everything is in the user's units. The columns of ``x`` are the controllable
    columns of ``z`` in increasing order; the columns of ``theta`` are those listed in
    ``uncontrollable``, in the order in which they are listed. All tensors are copies:
    later changes of the arguments do not reach the domain.

    Args:
        bounds: A ``2 x d`` tensor of lower and upper bounds of every column.
        uncontrollable: The indices of the uncontrollable columns, each in
            ``0, ..., d - 1``, at least one of them and not all.
        x_choices: An ``n_x x d_x`` tensor of the values that ``x`` may take, if it is
            restricted to a finite set, otherwise ``None``.
        theta_choices: An ``n_theta x d_theta`` tensor of the values that ``theta`` may
            take, if it is restricted to a finite set, otherwise ``None``.

    Example:
        >>> bounds = torch.tensor([[-5.0, 0.0], [10.0, 15.0]], dtype=torch.double)
        >>> domain = RobustDomain(bounds, uncontrollable=[1])
        >>> x, theta = domain.split(domain.sample(4, seed=0))
    """

    bounds: Tensor
    uncontrollable: Sequence[int]
    x_choices: Tensor | None = None
    theta_choices: Tensor | None = None
    controllable: tuple[int, ...] = field(init=False)
    _x_columns: Tensor = field(init=False, repr=False)
    _theta_columns: Tensor = field(init=False, repr=False)
    _z_columns: Tensor = field(init=False, repr=False)

    def __post_init__(self) -> None:
        bounds = _validated_bounds(self.bounds)
        uncontrollable = _validated_columns(self.uncontrollable, bounds.shape[-1])
        controllable = tuple(
            i for i in range(bounds.shape[-1]) if i not in uncontrollable
        )
        columns = torch.tensor(controllable + uncontrollable, device=bounds.device)
        x_columns, theta_columns = columns.split(
            [len(controllable), len(uncontrollable)]
        )
        for name, value in (
            ("bounds", bounds),
            ("uncontrollable", uncontrollable),
            ("controllable", controllable),
            ("_x_columns", x_columns),
            ("_theta_columns", theta_columns),
            ("_z_columns", columns.argsort()),
            ("x_choices", _validated_choices("x", self.x_choices, bounds, x_columns)),
            (
                "theta_choices",
                _validated_choices("theta", self.theta_choices, bounds, theta_columns),
            ),
        ):
            object.__setattr__(self, name, value)

    @property
    def dim(self) -> int:
        """The number of columns ``d`` of ``z``."""
        return self.bounds.shape[-1]

    @property
    def x_dim(self) -> int:
        """The number of controllable columns ``d_x``."""
        return len(self.controllable)

    @property
    def theta_dim(self) -> int:
        """The number of uncontrollable columns ``d_theta``."""
        return len(self.uncontrollable)

    @property
    def x_bounds(self) -> Tensor:
        """The ``2 x d_x`` bounds of the controllable columns."""
        return self.bounds.index_select(-1, self._x_columns)

    @property
    def theta_bounds(self) -> Tensor:
        """The ``2 x d_theta`` bounds of the uncontrollable columns."""
        return self.bounds.index_select(-1, self._theta_columns)

    @property
    def x_is_finite(self) -> bool:
        """Whether ``x`` is restricted to the finite set ``x_choices``."""
        return self.x_choices is not None

    @property
    def theta_is_finite(self) -> bool:
        """Whether ``theta`` is restricted to the finite set ``theta_choices``."""
        return self.theta_choices is not None

    def split(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Split points into their controllable and uncontrollable parts.

        Args:
            z: A ``batch_shape x d`` tensor of points.

        Returns:
            The ``batch_shape x d_x`` tensor ``x`` and the ``batch_shape x d_theta``
            tensor ``theta``.
        """
        _check_width("z", z, self.dim)
        return (
            z.index_select(-1, self._x_columns),
            z.index_select(-1, self._theta_columns),
        )

    def join(self, x: Tensor, theta: Tensor) -> Tensor:
        """Join controllable and uncontrollable parts into points; inverts ``split``.

        Args:
            x: A ``batch_shape_x x d_x`` tensor.
            theta: A ``batch_shape_theta x d_theta`` tensor.

        Returns:
            The ``batch_shape x d`` tensor ``z``, where ``batch_shape`` is
            ``batch_shape_x`` and ``batch_shape_theta`` broadcast together.
        """
        _check_width("x", x, self.x_dim)
        _check_width("theta", theta, self.theta_dim)
        try:
            batch_shape = torch.broadcast_shapes(x.shape[:-1], theta.shape[:-1])
        except RuntimeError as error:
            raise BotorchTensorDimensionError(
                "The batch shapes of `x` and `theta` must broadcast, got "
                f"{tuple(x.shape[:-1])} and {tuple(theta.shape[:-1])}."
            ) from error
        columns = torch.cat(
            [x.expand(*batch_shape, -1), theta.expand(*batch_shape, -1)], dim=-1
        )
        return columns.index_select(-1, self._z_columns)

    def contains_x(self, x: Tensor) -> Tensor:
        """Which controllable parts belong to the domain, up to rounding.

        Args:
            x: A ``batch_shape x d_x`` tensor.

        Returns:
            A ``batch_shape`` tensor of booleans.
        """
        _check_width("x", x, self.x_dim)
        return _contains(x, self.x_bounds, self.x_choices)

    def contains_theta(self, theta: Tensor) -> Tensor:
        """Which uncontrollable parts belong to the domain, up to rounding.

        Args:
            theta: A ``batch_shape x d_theta`` tensor.

        Returns:
            A ``batch_shape`` tensor of booleans.
        """
        _check_width("theta", theta, self.theta_dim)
        return _contains(theta, self.theta_bounds, self.theta_choices)

    def all_pairs(self) -> Tensor:
        """List every point of a domain in which both parts are finite.

        Returns:
            An ``n_x x n_theta x d`` tensor of all points ``(x, theta)``.
        """
        if self.x_choices is None or self.theta_choices is None:
            missing = [
                name
                for name in ("x_choices", "theta_choices")
                if getattr(self, name) is None
            ]
            raise UnsupportedError(
                "Only a domain with finite `x_choices` and `theta_choices` has a list "
                f"of all its points; this one has no {' and no '.join(missing)}."
            )
        return self.join(self.x_choices.unsqueeze(-2), self.theta_choices)

    def sample_x(self, n: int, seed: int | None = None) -> Tensor:
        """Draw space-filling controllable parts.

        Args:
            n: The number of points.
            seed: The seed of the scrambled Sobol sequence.

        Returns:
            An ``n x d_x`` tensor. Choices of a finite set may repeat.
        """
        return self._fill([(self.x_bounds, self.x_choices)], n, seed)[0]

    def sample_theta(self, n: int, seed: int | None = None) -> Tensor:
        """Draw space-filling uncontrollable parts.

        Args:
            n: The number of points.
            seed: The seed of the scrambled Sobol sequence.

        Returns:
            An ``n x d_theta`` tensor. Choices of a finite set may repeat.
        """
        return self._fill([(self.theta_bounds, self.theta_choices)], n, seed)[0]

    def sample(self, n: int, seed: int | None = None) -> Tensor:
        """Draw points that fill the space of ``z`` jointly.

        Args:
            n: The number of points.
            seed: The seed of the scrambled Sobol sequence.

        Returns:
            An ``n x d`` tensor. Choices of a finite set may repeat.
        """
        parts = [
            (self.x_bounds, self.x_choices),
            (self.theta_bounds, self.theta_choices),
        ]
        x, theta = self._fill(parts, n, seed)
        return self.join(x, theta)

    def to(
        self, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> RobustDomain:
        """Move the domain to a dtype and device.

        Args:
            dtype: The new floating point dtype, or ``None`` to keep the present one.
            device: The new device, or ``None`` to keep the present one.

        Returns:
            A new domain.
        """
        return RobustDomain(
            self.bounds.to(dtype=dtype, device=device),
            self.uncontrollable,
            *(
                None if choices is None else choices.to(dtype=dtype, device=device)
                for choices in (self.x_choices, self.theta_choices)
            ),
        )

    def _fill(
        self, parts: list[tuple[Tensor, Tensor | None]], n: int, seed: int | None
    ) -> list[Tensor]:
        """Draw one Sobol sequence over several parts.

        A box takes one dimension of the sequence for each of its columns; a finite set
        takes a single dimension, which is cut into as many equal pieces as there are
        choices, so that all choices are drawn about equally often.

        Args:
            parts: The ``2 x d_part`` bounds and the choices, if any, of each part.
            n: The number of points.
            seed: The seed of the sequence.

        Returns:
            An ``n x d_part`` tensor for each part.
        """
        check_number("n", n, 1)
        check_seed(seed)
        seed = None if seed is None else int(seed)  # torch wants a Python int
        widths = [
            bounds.shape[-1] if choices is None else 1 for bounds, choices in parts
        ]
        unit_cube = self.bounds.new_tensor([[0.0], [1.0]]).expand(2, sum(widths))
        unit = draw_sobol_samples(unit_cube, n=n, q=1, seed=seed).squeeze(-2)
        filled = []
        for u, (bounds, choices) in zip(unit.split(widths, dim=-1), parts, strict=True):
            if choices is None:
                filled.append(torch.lerp(bounds[0], bounds[1], u))
            else:
                index = (u.squeeze(-1) * len(choices)).long()
                # In single precision a coordinate may round up to one.
                filled.append(choices[index.clamp_max(len(choices) - 1)])
        return filled


def _contains(part: Tensor, bounds: Tensor, choices: Tensor | None) -> Tensor:
    """Whether points belong to a box or a finite set.

    Args:
        part: A ``batch_shape x d_part`` tensor.
        bounds: The ``2 x d_part`` bounds.
        choices: The ``n x d_part`` choices, or ``None``.

    Returns:
        A ``batch_shape`` tensor of booleans.
    """
    lower, upper = bounds.unbind()
    slack = ROUNDING * (upper - lower)
    if choices is None:
        return ((part >= lower - slack) & (part <= upper + slack)).all(dim=-1)
    distance = (part.unsqueeze(-2) - choices).abs()
    return (distance <= slack).all(dim=-1).any(dim=-1)


def _validated_bounds(bounds: Tensor) -> Tensor:
    """Check the bounds of a domain.

    Args:
        bounds: The user's bounds.

    Returns:
        A copy of the ``2 x d`` bounds.
    """
    _check_float_tensor("bounds", bounds)
    if bounds.ndim != 2 or bounds.shape[0] != 2 or bounds.shape[1] < 2:
        raise BotorchTensorDimensionError(
            "Expected `bounds` of shape 2 x d with d of at least 2 (one controllable "
            f"and one uncontrollable column), got shape {tuple(bounds.shape)}."
        )
    for column, (lower, upper) in enumerate(bounds.T.tolist()):
        if not (torch.isfinite(bounds[:, column]).all() and lower < upper):
            raise InputDataError(
                "Expected finite `bounds` with lower < upper in every column, got "
                f"lower = {lower} and upper = {upper} in column {column}."
            )
    return bounds.detach().clone()


def _validated_columns(uncontrollable: Sequence[int], dim: int) -> tuple[int, ...]:
    """Check the indices of the uncontrollable columns.

    Args:
        uncontrollable: The user's indices.
        dim: The number of columns of ``z``.

    Returns:
        The indices as plain integers.
    """
    expectation = (
        f"Expected `uncontrollable` to list distinct column indices from 0 to "
        f"{dim - 1}, at least one and at most {dim - 1} of them"
    )
    try:
        columns = tuple(operator.index(i) for i in uncontrollable)
    except TypeError as error:
        raise TypeError(f"{expectation}, got {uncontrollable!r}.") from error
    for problem, found in (
        ("is empty", not columns),
        ("has an index out of range", any(not 0 <= i < dim for i in columns)),
        ("repeats an index", len(set(columns)) < len(columns)),
        ("leaves no column controllable", len(set(columns)) >= dim),
    ):
        if found:
            raise InputDataError(f"{expectation}; {list(columns)} {problem}.")
    return columns


def _validated_choices(
    part: str, choices: Tensor | None, bounds: Tensor, columns: Tensor
) -> Tensor | None:
    """Check the finite set of one part of the domain.

    Args:
        part: The part's name, ``"x"`` or ``"theta"``.
        choices: The user's choices, or ``None``.
        bounds: The ``2 x d`` bounds of the domain.
        columns: The part's columns of ``z``.

    Returns:
        A copy of the ``n x d_part`` choices, or ``None``.
    """
    if choices is None:
        return None
    name = f"{part}_choices"
    _check_float_tensor(name, choices)
    if (choices.dtype, choices.device) != (bounds.dtype, bounds.device):
        raise InputDataError(
            f"Expected `{name}` of the dtype and device of `bounds`, {bounds.dtype} on "
            f"{bounds.device}, got {choices.dtype} on {choices.device}."
        )
    if choices.ndim != 2 or choices.shape[-1] != len(columns) or len(choices) < 1:
        raise BotorchTensorDimensionError(
            f"Expected `{name}` of shape n x {len(columns)} (one column for each of "
            f"the columns {columns.tolist()} of z) with n of at least 1, got shape "
            f"{tuple(choices.shape)}."
        )
    lower, upper = bounds.index_select(-1, columns)
    outside = ~((choices >= lower) & (choices <= upper)).all(dim=-1)
    if outside.any():
        row = int(outside.nonzero()[0])
        raise InputDataError(
            f"Expected `{name}` within the bounds {lower.tolist()} to "
            f"{upper.tolist()}, got {choices[row].tolist()} in row {row}."
        )
    unique, counts = choices.unique(dim=0, return_counts=True)
    if len(unique) < len(choices):
        repeated = unique[counts.argmax()].tolist()
        raise InputDataError(
            f"Expected distinct rows in `{name}`, got {repeated} "
            f"{int(counts.max())} times."
        )
    return choices.detach().clone()


def _check_float_tensor(name: str, value: Tensor) -> None:
    """Raise unless an argument is a tensor of floats.

    Args:
        name: The argument's name.
        value: Its value.
    """
    if not isinstance(value, Tensor):
        raise TypeError(f"Expected `{name}` to be a tensor, got {value!r}.")
    if not value.is_floating_point():
        raise InputDataError(
            f"Expected `{name}` to hold floats, for example torch.double, got "
            f"{value.dtype}."
        )


def _check_width(name: str, value: Tensor, width: int) -> None:
    """Raise unless the last dimension of a tensor has the expected size.

    Args:
        name: The argument's name.
        value: Its value.
        width: The expected number of columns.
    """
    if value.ndim < 1 or value.shape[-1] != width:
        raise BotorchTensorDimensionError(
            f"Expected `{name}` of shape batch_shape x {width}, got shape "
            f"{tuple(value.shape)}."
        )
