"""The settings of a study: what makes sense, what is stored, and how they go on."""

from __future__ import annotations

import inspect
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any

from botorch.exceptions.errors import InputDataError
from botorch.exceptions.warnings import UserInputWarning

from botorch_res.checks import check_number, check_seed, is_number
from botorch_res.study.observations import check_noise
from botorch_res.study.space import ParameterSpace
from botorch_res.study.storage import StudyRecord


def check_settings(
    seed: int | None, num_initial: int | None, noise: float | None, gamma: float | None
) -> None:
    """Raise unless the settings of a study make sense.

    Args:
        seed: The seed.
        num_initial: The size of the initial design.
        noise: The standard deviation of the noise.
        gamma: The probability of exploiting.
    """
    check_noise(noise)
    if num_initial is not None:
        check_number("num_initial", num_initial, 1)
    check_seed(seed)
    if gamma is not None and not (is_number(gamma) and 0 <= gamma <= 1):
        raise InputDataError(
            f"Expected `gamma` to be a probability from 0 to 1, got {gamma!r}."
        )


def check_model(model: Callable[..., Any] | None, cat_dims: Sequence[int]) -> None:
    """Raise unless a model factory can be called as a study calls it.

    Args:
        model: The factory, or ``None``.
        cat_dims: The columns of the domain whose values stand for names.
    """
    if model is None:
        return
    if not callable(model):
        raise InputDataError(f"Expected `model` to be callable, got {model!r}.")
    arguments = inspect.signature(model).parameters.values()
    knows = any(a.name == "cat_dims" or a.kind == a.VAR_KEYWORD for a in arguments)
    if cat_dims and not knows:
        raise InputDataError(
            "Expected `model` to have an argument `cat_dims`, the columns of names, "
            f"here {list(cat_dims)}, got {factory_name(model)} with "
            f"{', '.join(a.name for a in arguments)}."
        )


def check_same_study(
    stored: StudyRecord, wanted: StudyRecord, seed: int | None, path: Path | None
) -> None:
    """Raise if the study in a file is another one.

    Args:
        stored: The study in the file.
        wanted: The study that the user describes.
        seed: The seed that the user gave, if any.
        path: The file.
    """
    advice = (
        "Use another file for another study. To go on with this one, describe it as "
        f"before; in Python, RobustOptimizer.open({str(path)!r}) does."
    )
    if stored.space != wanted.space:
        before, now = (
            ParameterSpace.from_dict(r.space).describe() for r in (stored, wanted)
        )
        raise InputDataError(
            f"The study in {path} has another domain: {before}. You gave {now}. "
            f"{advice}"
        )
    if stored.maximize != wanted.maximize:
        before, now = (
            f"to {'maximise' if record.maximize else 'minimise'} the worst case "
            f"(maximize={record.maximize})"
            for record in (stored, wanted)
        )
        raise InputDataError(
            f"The study in {path} is {before}; you asked {now}. {advice}"
        )
    if seed is not None and stored.seed != seed:
        raise InputDataError(
            f"The study in {path} has the seed {stored.seed}, you gave {seed}. Use "
            "another file for another study, or leave the seed out to go on with this "
            "one."
        )


def factory_name(factory: Callable[..., Any]) -> str:
    """Name a model factory, for people.

    Args:
        factory: A function, or an object that can be called.

    Returns:
        The name of the function, or of the object's class.
    """
    return str(getattr(factory, "__qualname__", type(factory).__qualname__))


def storable(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as a study keeps them.

    Args:
        settings: The settings.

    Returns:
        Those that are plain numbers and texts, or lists and tables of them.
    """
    kept = {
        name: int(value) if isinstance(value, Integral) else value
        for name, value in settings.items()
    }
    kept["gamma"] = float(kept["gamma"])
    try:
        json.dumps(kept["strategy_options"])
    except TypeError as error:
        warnings.warn(
            f"The strategy's options {kept['strategy_options']} cannot be stored with "
            f"the study ({error}). Give them again when it is reopened.",
            UserInputWarning,
            stacklevel=3,
        )
        kept["strategy_options"] = {}
    return kept


def continued(stored: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with which a study goes on.

    Args:
        stored: Its settings so far.
        given: Settings that the user gives now.

    Returns:
        The given ones, and the stored ones for the rest.
    """
    settings = {**stored, **given}
    if settings["strategy"] != stored["strategy"]:
        settings["strategy_options"] = given.get("strategy_options", {})
    if stored["model"] is not None and "model" not in given:
        warnings.warn(
            f"The study was begun with the model {stored['model']} and goes on with "
            "the default one. Give the same `model` to go on as before.",
            UserInputWarning,
            stacklevel=3,
        )
    return settings
