"""What the command line optimises: built-in problems and functions with a domain."""

from __future__ import annotations

import difflib
import importlib
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from botorch.exceptions.errors import InputDataError

from botorch_res.study.parameters import Choice, Integer, Parameter, Range
from botorch_res.study.space import ParameterSpace

# What may stand in the table of every parameter.
_KEYS = {"evaluate", "log", "tolerance", "uncontrollable", "unit"}


@dataclass(frozen=True)
class Task:
    """What to optimise.

    Attributes:
        function: The function.
        space: Its parameters.
        maximize: The direction.
        problem: The built-in problem, whose robust optimum is known.
    """

    function: Callable[..., Any]
    space: ParameterSpace
    maximize: bool
    problem: Any = None


def built_in_problems() -> dict[str, type[Any]]:
    """The test problems by their names on the command line, such as ``branin``.

    Those with constraints are left out.
    """
    module = importlib.import_module("botorch_res.test_functions")
    return {
        name.removeprefix("Robust").lower(): getattr(module, name)
        for name in module.__all__
        if name not in ("RobustTestProblem", "ToleranceProblem")
        and not issubclass(getattr(module, name), module.WorstCaseConstraints)
    }


def read_domain(path: Path) -> tuple[ParameterSpace, bool]:
    """Read a domain and a direction from a TOML file.

    Args:
        path: The file.

    Returns:
        The parameters, and whether to maximise.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputDataError(f"Cannot read the domain file {path}: {error}.") from error
    except tomllib.TOMLDecodeError as error:
        raise InputDataError(f"{path} is not a TOML file: {error}.") from error
    unknown = set(content) - {"direction", "parameters"}
    direction = content.get("direction")
    if unknown or direction not in ("minimize", "maximize"):
        raise InputDataError(
            f'Expected {path} to have direction = "minimize" or "maximize" and a table '
            f"for each parameter, got direction = {direction!r} and the keys "
            f"{sorted(content)}."
        )
    tables = content.get("parameters", {})
    if not isinstance(tables, Mapping):
        raise InputDataError(
            f"Expected {path} to have a table [parameters.NAME] for each parameter, "
            f"got parameters = {tables!r}."
        )
    parameters = [_parameter(name, table) for name, table in tables.items()]
    return ParameterSpace(parameters), direction == "maximize"


def load_task(problem: str, domain_file: Path | None) -> Task:
    """Find out what to optimise.

    Args:
        problem: The name of a built-in problem, or ``module:function``.
        domain_file: The TOML file with the domain of a function.

    Returns:
        The task.
    """
    if ":" not in problem:
        problems = built_in_problems()
        if problem.lower() not in problems:
            raise InputDataError(
                f"Expected a built-in problem ({', '.join(sorted(problems))}) or "
                f"module:function, got {problem!r}."
            )
        if domain_file is not None:
            raise InputDataError(f"The built-in problem {problem} has its own domain.")
        built_in = problems[problem.lower()]()
        maximize = not built_in.is_minimization_problem
        space = ParameterSpace.from_domain(built_in.domain)
        return Task(built_in, space, maximize, built_in)
    if domain_file is None:
        raise InputDataError(
            f"The function {problem} needs a domain: --domain FILE.toml. "
            "`botorch-res --help` shows one."
        )
    space, maximize = read_domain(domain_file)
    return Task(_import_function(problem), space, maximize)


def _import_function(problem: str) -> Callable[..., Any]:
    """Import ``module:function``."""
    module_name, _, function_name = problem.partition(":")
    # A module beside the user is found as with `python -m`.
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name == module_name
        raise InputDataError(
            f"There is no module {module_name!r} for {problem}. Run the command in the "
            f"folder of {module_name}.py, or install the module."
            if missing
            else f"The module {module_name!r} cannot be imported: "
            f"{type(error).__name__}: {error}. `python -c 'import {module_name}'` "
            "shows where."
        ) from error
    function: Callable[..., Any] | None = getattr(module, function_name, None)
    if not callable(function):
        names = [name for name in vars(module) if callable(getattr(module, name))]
        near = difflib.get_close_matches(function_name, names)
        raise InputDataError(
            f"There is no function {function_name!r} in {module.__file__}."
            + f" Is it {' or '.join(near)}?" * bool(near)
        )
    return function


def _parameter(name: str, table: Any) -> Parameter:
    """A parameter from its table."""
    expectation = (
        f"Expected [parameters.{name}] to have either `values`, or `lower` and `upper` "
        "(with `integer = true` for whole numbers, or with a number of `levels`); and, "
        f"if need be, {', '.join(sorted(_KEYS))}"
    )
    if not isinstance(table, Mapping):
        raise InputDataError(f"{expectation}; it is {table!r}.")
    content = dict(table)
    integer = content.pop("integer", False)
    if not isinstance(integer, bool):
        raise InputDataError(f"{expectation}; `integer` is {integer!r}.")
    needed = {"values"} if "values" in content and not integer else {"lower", "upper"}
    possible = needed | _KEYS
    if "values" not in content and not integer:
        possible = possible | {"levels"}
    for problem, keys in (
        ("lacks", needed - set(content)),
        ("has no use for", set(content) - possible),
    ):
        if keys:
            raise InputDataError(
                f"{expectation}; it {problem} {', '.join(map(repr, sorted(keys)))}: "
                f"{dict(table)}."
            )
    if integer:
        return Integer(name, **content)
    return (Choice if "values" in content else Range)(name, **content)
