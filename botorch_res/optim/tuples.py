"""``select``, ``where`` and ``join`` for named tuples of batched tensors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import torch
from torch import Tensor

T = TypeVar("T", bound=tuple[Any, ...])


def select(parts: T, index: Tensor, dim: int = -1) -> T:
    """Select elements of every tensor of a tuple.

    Args:
        parts: A NamedTuple of tensors, whose leading dimensions are those of ``index``.
        index: The positions of the elements.
        dim: The dimension of ``index`` along which to select.

    Returns:
        The tuple of selected elements.
    """
    return _make(
        parts,
        (part.take_along_dim(_expand(index, part), dim % index.ndim) for part in parts),
    )


def where(condition: Tensor, first: T, second: T) -> T:
    """Take each element from one of two tuples, like ``torch.where``.

    Args:
        condition: Booleans in the leading dimensions of the tensors.
        first: A NamedTuple of tensors, used where the condition holds.
        second: A NamedTuple of the same class, used elsewhere.

    Returns:
        The combined tuple.
    """
    pairs = zip(first, second, strict=True)
    return _make(first, (torch.where(_expand(condition, a), a, b) for a, b in pairs))


def join(tuples: list[T], dim: int) -> T:
    """Join tuples along a dimension that all of their tensors have.

    Args:
        tuples: NamedTuples of one class.
        dim: The dimension, counted from the front.

    Returns:
        The joined tuple.
    """
    columns = zip(*tuples, strict=True)
    return _make(tuples[0], (torch.cat(column, dim) for column in columns))


def _make(like: T, parts: Iterable[Tensor]) -> T:
    """Make a tuple of the same class as another one."""
    made: T = like._make(parts)  # type: ignore[attr-defined]
    return made


def _expand(index: Tensor, part: Tensor) -> Tensor:
    """Add trailing dimensions of size one, until there are as many as in a tensor."""
    return index.reshape(*index.shape, *[1] * (part.ndim - index.ndim))
