"""Objects on a device that this machine need not have.

Under ``FakeTensorMode`` a tensor of another device has a shape and a dtype but no data:
an operation with a tensor of the CPU raises a device error, and whatever would wait for
the device raises a data-dependent error. ``device="cuda"`` is allowed, but a build of
torch without CUDA can neither index such tensors nor record their gradients; those of
``device="meta"`` are as strict and can do both.
"""

from __future__ import annotations

import copy
from typing import Any, TypeVar

import torch
from torch import Tensor

Anything = TypeVar("Anything")


def on_fake_device(thing: Anything, device: str) -> Anything:
    """Copy an object with all of its tensors replaced by fake ones.

    Args:
        thing: The object, with tensors anywhere in its attributes.
        device: The device of the fake tensors.

    Returns:
        The copy. To be called, and used, within a ``FakeTensorMode``.
    """
    tensors: dict[int, Tensor] = {}
    _collect(thing, tensors, set())
    memo: dict[int, Any] = {
        key: torch.empty(value.shape, dtype=value.dtype, device=device)
        for key, value in tensors.items()
    }
    return copy.deepcopy(thing, memo)


def _collect(thing: Any, tensors: dict[int, Tensor], seen: set[int]) -> None:
    if isinstance(thing, Tensor):
        tensors[id(thing)] = thing
        return
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, dict):
        parts = list(thing.values())
    elif isinstance(thing, list | tuple | set):
        parts = list(thing)
    else:
        parts = list(vars(thing).values()) if hasattr(thing, "__dict__") else []
    for part in parts:
        _collect(part, tensors, seen)
