"""What users' numbers have to be, told where they are declared."""

from __future__ import annotations

import math
from dataclasses import field, fields
from numbers import Integral, Real
from typing import Any

from botorch.exceptions.errors import InputDataError


def at_least(least: float, default: float | None) -> Any:
    """A field of a dataclass that ``check_numbers`` checks.

    Args:
        least: The least value that makes sense. Where it is an ``int``, the field is a
            whole number.
        default: The field's default. Where it is ``None``, the field may be.

    Returns:
        The field.
    """
    return field(default=default, metadata={"least": least})


def check_numbers(options: Any) -> None:
    """Raise unless all fields declared with ``at_least`` are large enough.

    Args:
        options: An instance of a dataclass.
    """
    for option in fields(options):
        if "least" in option.metadata:
            value = getattr(options, option.name)
            if value is not None or option.default is not None:
                check_number(option.name, value, option.metadata["least"])


def check_number(name: str, value: Any, least: Any) -> None:
    """Raise unless a number is finite and large enough.

    Args:
        name: The argument's name.
        value: Its value.
        least: The least value that makes sense. Where it is an ``int``, only whole
            numbers do.
    """
    kind, text = (
        (Integral, "whole") if isinstance(least, Integral) else (Real, "finite")
    )
    # Python counts truth values among the whole numbers.
    is_number = isinstance(value, kind) and not isinstance(value, bool)
    if not is_number or not least <= value < math.inf:
        raise InputDataError(
            f"Expected `{name}` to be a {text} number of at least {least}, got "
            f"{value!r}."
        )
