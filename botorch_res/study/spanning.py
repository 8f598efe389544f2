"""The domain that named parameters span.

Every parameter is a column. A parameter with finitely many values is a listed column, a
range a free one, in any mixture.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from botorch.exceptions.errors import InputDataError, UnsupportedError
from torch import Tensor

from botorch_res.domain import RobustDomain
from botorch_res.study.parameters import Parameter
from botorch_res.study.parameters.kinds import MAX_COMBINATIONS
from botorch_res.study.trials import OTHER_COLUMNS

# The largest number of pairs of listed combinations in both parts of a space. A
# suggestion compares all pairs, at about 0.1 ms for each of them.
MAX_PAIRS = 1_000_000


def span_domain(parameters: Sequence[Parameter]) -> RobustDomain:
    """Span the domain of named parameters.

    Args:
        parameters: The parameters, at least one controllable, and at least one
            uncontrollable or with a tolerance.

    Returns:
        The domain, in the model's coordinates and double precision.
    """
    _check_names([parameter.name for parameter in parameters])
    columns = dict(enumerate(parameters))
    theta = {i: p for i, p in columns.items() if p.uncontrollable}
    x = {i: p for i, p in columns.items() if i not in theta}
    tolerances = {i: p.tolerance for i, p in x.items() if p.tolerance is not None}
    if not (theta or tolerances) or not x:
        missing = "controllable" if theta else "uncontrollable"
        raise InputDataError(
            f"Expected at least one {missing} parameter, got none among "
            f"{[p.name for p in parameters]}. Mark the parameters that nature chooses "
            "with `uncontrollable=True`, and give those that you set, but not exactly, "
            "a `tolerance`."
        )
    sizes = [_count("controllable", x), _count("uncontrollable", theta)]
    if math.prod(sizes) > MAX_PAIRS:
        raise UnsupportedError(
            f"The {sizes[0]} combinations of controllable and the {sizes[1]} of "
            f"uncontrollable parameters make {math.prod(sizes)} pairs, more than "
            f"{MAX_PAIRS}. Use fewer levels, coarser lists or ranges without levels."
        )
    return RobustDomain(
        _bounds(parameters),
        list(theta),
        _choices(x),
        _choices(theta),
        tolerances,
        _bounds([p.evaluations for p in parameters]) if tolerances else None,
        [i for i, p in columns.items() if p.names is not None],
    )


def _check_names(names: list[str]) -> None:
    """Raise if parameters cannot be told apart, or from other columns of the table."""
    if len(set(names)) < len(names):
        raise InputDataError(f"Expected distinct parameter names, got {names}.")
    if taken := [name for name in names if name in OTHER_COLUMNS]:
        raise InputDataError(
            f"The table of trials has a column {taken[0]!r} already. Give the "
            f"parameter another name, such as '{taken[0]}_setting'."
        )


def _count(part: str, parameters: dict[int, Parameter]) -> int:
    """The number of combinations of finitely many values, if it is not too large."""
    finite = {p.name: len(p.values) for p in parameters.values() if p.values}
    count = math.prod(finite.values())
    if count > MAX_COMBINATIONS:
        raise UnsupportedError(
            f"The {part} parameters {', '.join(finite)} have "
            f"{' x '.join(map(str, finite.values()))} = {count} combinations, more "
            f"than {MAX_COMBINATIONS}. Use fewer levels, coarser lists, or ranges "
            "without levels, and round inside the function."
        )
    return count


def _bounds(parameters: Sequence[Parameter]) -> Tensor:
    """The bounds of parameters in the model's coordinates."""
    ends = [parameter.ends for parameter in parameters]
    return torch.tensor(ends, dtype=torch.double).T.contiguous()


def _choices(parameters: dict[int, Parameter]) -> dict[int, list[float]] | None:
    """The coordinates of the columns with finitely many values, if there are any."""
    listed = {i: p.coordinates for i, p in parameters.items() if p.values is not None}
    return listed or None
