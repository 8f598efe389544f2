"""Checks of users' arguments, with one form of error.

Every error names the argument, what was expected, and the value that came instead:
"Expected `name` to be ..., got ...".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import field, fields
from numbers import Integral, Real
from typing import Any

import torch
from botorch.exceptions.errors import BotorchTensorDimensionError, InputDataError
from torch import Tensor


def at_least(least: float, default: float | None) -> Any:
    """A dataclass field that ``check_numbers`` checks.

    Args:
        least: The smallest value allowed. If it is an ``int``, the field must be a
            whole number.
        default: The field's default. If it is ``None``, the field may be ``None``.

    Returns:
        The field.
    """
    return field(default=default, metadata={"least": least})


def check_numbers(options: Any) -> None:
    """Raise an error unless all fields made with ``at_least`` are large enough.

    Args:
        options: An instance of a dataclass.
    """
    for option in fields(options):
        if "least" in option.metadata:
            value = getattr(options, option.name)
            if value is not None or option.default is not None:
                check_number(option.name, value, option.metadata["least"])


def is_number(value: object) -> bool:
    """Whether a value is a real number, and not a truth value.

    Args:
        value: The value.

    Returns:
        The answer.
    """
    return isinstance(value, Real) and not isinstance(value, bool)


def check_number(name: str, value: Any, least: Any) -> None:
    """Raise an error unless a number is finite and large enough.

    Args:
        name: The argument's name.
        value: Its value.
        least: The smallest value allowed. If it is an ``int``, only whole numbers are.
    """
    kind, text = (
        (Integral, "whole") if isinstance(least, Integral) else (Real, "finite")
    )
    # To Python, True and False are integers.
    is_of_kind = isinstance(value, kind) and not isinstance(value, bool)
    if not is_of_kind or not least <= value < math.inf:
        raise InputDataError(
            f"Expected `{name}` to be a {text} number of at least {least}, got "
            f"{value!r}."
        )


def check_probability(name: str, value: Any) -> None:
    """Raise an error unless a value is a probability that is not zero.

    Args:
        name: The argument's name.
        value: Its value.
    """
    if not is_number(value) or not 0.0 < value <= 1.0:
        raise InputDataError(
            f"Expected `{name}` to be a number above 0 and at most 1, got {value!r}."
        )


def check_seed(seed: Any, optional: bool = True) -> None:
    """Raise an error unless a seed is a whole number that every generator accepts.

    Args:
        seed: The seed.
        optional: Whether it may be ``None``.
    """
    if optional and seed is None:
        return
    is_whole = isinstance(seed, Integral) and not isinstance(seed, bool)
    if not is_whole or not 0 <= seed < 2**63:
        expected = "None or a whole number" if optional else "a whole number"
        raise InputDataError(
            f"Expected `seed` to be {expected} from 0 to 2**63 - 1, got {seed!r}."
        )


def check_type(name: str, value: Any, kind: type) -> None:
    """Raise an error unless an argument is an instance of a class.

    Args:
        name: The argument's name.
        value: Its value.
        kind: The class.
    """
    if not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "AEIOU" else "a"
        raise InputDataError(
            f"Expected `{name}` to be {article} {kind.__name__}, got "
            f"{type(value).__name__}."
        )


def check_points(name: str, points: Any, dim: int, leading: str) -> None:
    """Raise an error unless an argument is a tensor of points.

    Args:
        name: The argument's name.
        points: Its value.
        dim: The number of columns.
        leading: The shape in front of the columns, as the error states it. With ``"m"``
            there must be two dimensions, otherwise there may be any number.
    """
    check_type(name, points, Tensor)
    if points.shape[-1:] != (dim,) or (leading == "m" and points.ndim != 2):
        raise BotorchTensorDimensionError(
            f"Expected `{name}` of shape {leading} x {dim}, got shape "
            f"{tuple(points.shape)}."
        )


def check_like(name: str, value: Tensor, bounds: Tensor) -> None:
    """Raise an error unless a tensor has the dtype and device of a domain's bounds.

    Args:
        name: The argument's name.
        value: Its value.
        bounds: The bounds.
    """
    if (value.dtype, value.device) != (bounds.dtype, bounds.device):
        raise InputDataError(
            f"Expected `{name}` of the dtype and device of `bounds`, {bounds.dtype} on "
            f"{bounds.device}, got {value.dtype} on {value.device}."
        )


def try_out(name: str, function: Callable[[Tensor], Tensor], point: Tensor) -> Tensor:
    """Raise an error unless a function accepts points of a domain.

    Args:
        name: The argument's name.
        function: The function.
        point: A point of the domain, in the shape that the function expects.

    Returns:
        The function's value at the point.
    """
    try:
        with torch.no_grad():
            return function(point)
    except (RuntimeError, BotorchTensorDimensionError) as error:
        raise BotorchTensorDimensionError(
            f"Expected `{name}` to accept points of the `domain`, with its columns, "
            f"dtype and device, but it fails at a point of shape {tuple(point.shape)}, "
            f"{point.dtype}, on {point.device}: {error}"
        ) from error


def check_finite(**arguments: Tensor) -> None:
    """Raise an error unless all elements of the given tensors are finite.

    Args:
        **arguments: The tensors, by name.
    """
    for name, value in arguments.items():
        require(value.isfinite(), f"`{name}` to be finite", value)


def check_bounds(lower: Tensor, upper: Tensor) -> None:
    """Raise an error unless bounds are numbers in the right order.

    Args:
        lower: The lower bounds.
        upper: The upper bounds.
    """
    for name, value in (("lower", lower), ("upper", upper)):
        require(value.isnan().logical_not(), f"`{name}` to be a number", value)
    lower, upper = torch.broadcast_tensors(lower, upper)
    require(lower <= upper, "`lower` to be at most `upper`", lower, upper)


def require(fulfilled: Tensor, expectation: str, *values: Tensor) -> None:
    """Raise an error unless a condition holds everywhere; quote the first failure.

    Args:
        fulfilled: Booleans: where the condition holds.
        expectation: The condition in words.
        *values: The tensors to quote, in the shape of ``fulfilled``.
    """
    if not fulfilled.all():
        wrong = fulfilled.logical_not()
        index = tuple(wrong.nonzero()[0].tolist())
        got = " and ".join(str(value[index].item()) for value in values)
        raise InputDataError(
            f"Expected {expectation}, got {got} at index {index} "
            f"({int(wrong.sum())} of {wrong.numel()} elements are wrong)."
        )
