"""Selecting, choosing and joining results that are tuples of batched tensors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import torch
from torch import Tensor

T = TypeVar("T", bound=tuple[Any, ...])


def select(parts: T, index: Tensor, dim: int = -1) -> T:
    """Keep some elements of every tensor of a tuple.

    Args:
        parts: A NamedTuple of tensors, whose leading dimensions are those of ``index``.
        index: The positions of the elements to keep.
        dim: The dimension of ``index`` along which to keep them.

    Returns:
        The tuple of what is kept.
    """
    return _make(
        parts,
        (part.take_along_dim(_expand(index, part), dim % index.ndim) for part in parts),
    )


def where(condition: Tensor, first: T, second: T) -> T:
    """Choose between two tuples, element by element.

    Args:
        condition: Booleans in the tensors' leading dimensions.
        first: A NamedTuple of tensors, taken where the condition holds.
        second: One of the same kind, taken elsewhere.

    Returns:
        The tuple of what is chosen.
    """
    pairs = zip(first, second, strict=True)
    return _make(first, (torch.where(_expand(condition, a), a, b) for a, b in pairs))


def join(tuples: list[T], dim: int) -> T:
    """Join tuples along one dimension, which all of their tensors have.

    Args:
        tuples: NamedTuples of tensors, of one kind.
        dim: The dimension, counted from the first.

    Returns:
        The joined tuple.
    """
    columns = zip(*tuples, strict=True)
    return _make(tuples[0], (torch.cat(column, dim) for column in columns))


def _make(like: T, parts: Iterable[Tensor]) -> T:
    """A tuple of the class of another one."""
    made: T = like._make(parts)  # type: ignore[attr-defined]
    return made


def _expand(index: Tensor, part: Tensor) -> Tensor:
    """Add trailing dimensions of size one, as many as a tensor has."""
    return index.reshape(*index.shape, *[1] * (part.ndim - index.ndim))
