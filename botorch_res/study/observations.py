"""Observations: what may be told, and what the model gets to see of it.

Whatever is wrong is an error that says what to do, raised before anything is stored.
"""

from __future__ import annotations

import hashlib
import math
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from botorch.exceptions.errors import InputDataError
from torch import Tensor

from botorch_res.models.scaled_gp import outcome_scale
from botorch_res.study.storage import COMPLETE, FAILED, Trial

# Squares of larger values overflow.
_LARGEST_VALUE = 1e100


class Observations(NamedTuple):
    """The told values as tensors.

    Attributes:
        X: ``t x d`` points, in the order of the trials' numbers.
        Y: ``t x 1`` values, divided by ``unit``.
        Yvar: ``t x 1`` variances of their noise, divided by ``unit ** 2``, or ``None``.
        unit: A power of ten.
    """

    X: Tensor
    Y: Tensor
    Yvar: Tensor | None
    unit: float


def collect(
    trials: Sequence[Trial], noise: float | None, rescale: bool
) -> Observations:
    """Collect the values told so far.

    Args:
        trials: All trials.
        noise: The standard deviation of the noise of values that came without one.
        rescale: Whether to divide by a power of ten that makes the values' spread of
            order one. gpytorch raises every variance below 1e-10 to that value, which
            spoils the predictions of small numbers.

    Returns:
        The observations.
    """
    told = [trial for trial in trials if trial.state == COMPLETE]
    if not told:
        failed = sum(trial.state == FAILED for trial in trials)
        raise InputDataError(
            "The study has no value yet, so there is nothing to learn from "
            f"({len(trials)} trial(s), {failed} of them failed). Ask, evaluate and "
            "tell first."
        )
    X = torch.tensor([trial.point for trial in told], dtype=torch.double)
    Y = torch.tensor([[trial.value] for trial in told], dtype=torch.double)
    unit = 1.0
    if rescale:
        unit = 10.0 ** math.floor(math.log10(float(outcome_scale(Y)[1])))
    noises = [noise if trial.noise is None else trial.noise for trial in told]
    given = [deviation**2 for deviation in noises if deviation is not None]
    if not given:
        return Observations(X, Y / unit, None, unit)
    usual = sum(given) / len(given)
    variances = [[usual if s is None else s**2] for s in noises]
    return Observations(X, Y / unit, Y.new_tensor(variances) / unit**2, unit)


def derive_seed(seed: int, purpose: int | str) -> int:
    """A seed for one purpose, the same on every machine.

    Args:
        seed: The study's seed.
        purpose: A name, or the number of a trial.

    Returns:
        A number below ``2 ** 31``.
    """
    digest = hashlib.sha256(f"{seed}/{purpose}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def check_value(value: object, where: str) -> float:
    """Raise unless a value can be stored.

    Args:
        value: The value: a number, or a tensor or array of one element.
        where: Whose value it is, for the message.

    Returns:
        The value as a float.
    """
    advice = "If there is no value, use `fail(trial, reason)`."
    number = _as_float(value, f"the value {where}", advice)
    if not math.isfinite(number):
        raise InputDataError(
            f"Expected the value {where} to be finite, got {number}. If the experiment "
            "gave no value, use `fail(trial, reason)`."
        )
    if abs(number) > _LARGEST_VALUE:
        raise InputDataError(
            f"Expected the value {where} to be at most {_LARGEST_VALUE:.0e} in "
            f"magnitude, got {number}. Use another unit, or `fail(trial, reason)` if "
            "this stands for a failure."
        )
    return number


def check_noise(noise: object) -> float | None:
    """Raise unless a noise can be stored.

    Args:
        noise: The standard deviation, or ``None``.

    Returns:
        The standard deviation as a float, or ``None``.
    """
    if noise is None:
        return None
    advice = "Leave it out if it is not known."
    number = _as_float(noise, "the noise, a standard deviation,", advice)
    if not 0 <= number <= _LARGEST_VALUE:
        raise InputDataError(
            "Expected the noise, a standard deviation, to be finite and at least 0, "
            f"got {number}. {advice}"
        )
    return number


def _as_float(value: object, what: str, advice: str) -> float:
    """A number, or a tensor or array of one, as a float."""
    content: Any = value
    if hasattr(content, "numel") or hasattr(content, "ndim"):
        size = content.numel() if hasattr(content, "numel") else content.size
        if size != 1:
            raise InputDataError(
                f"Expected {what} to be one number, got {size} of them."
            )
        content = content.item()
    if isinstance(content, (bool, str, complex)) or not hasattr(content, "__float__"):
        raise InputDataError(f"Expected {what} to be a number, got {value!r}. {advice}")
    return float(content)


def trial_number(trial: Trial | int) -> tuple[int, tuple[float, ...] | None]:
    """Say which trial is meant; raise if none is.

    Args:
        trial: The trial, or its number.

    Returns:
        The number, and the point if it is known.
    """
    if isinstance(trial, Trial):
        return trial.number, trial.point
    if isinstance(trial, bool) or not hasattr(trial, "__index__"):
        raise InputDataError(
            "Expected `trial` to be a trial from `ask` or its number, got "
            f"{trial!r}. Tell several trials one by one."
        )
    return operator.index(trial), None
