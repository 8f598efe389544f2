"""Units of the regret runs: what each is to do, and the file that it has done it in.

A unit of work is a problem, a strategy and a block of seeds. Its file, of JSON lines,
begins with what was run (the settings, the versions, the date), and gets one line for
each iteration, with a list entry for each seed. ``pack_units`` compresses the files of
finished units.
"""

from __future__ import annotations

import fcntl
import gzip
import json
import os
import platform
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import botorch
import gpytorch
import torch

import benchmarks.baselines  # noqa: F401, for their names
import botorch_res
from benchmarks.protocols import Objective, Protocol, protocol
from botorch_res.models import DefaultGP
from botorch_res.strategies import Strategy, make_strategy, supports_replicates

Record = dict[str, Any]


@dataclass(frozen=True)
class Settings:
    """What to run besides the names: changes to the protocols.

    Attributes:
        iterations: The number of iterations; the protocol's if ``None``.
        noise_std: The noise of the evaluations; the protocol's if ``None``.
        noise_variance: The noise that the model assumes; the protocol's if ``None``.
        default_model: Whether the model is the package's default one in place of the
            protocol's.
        num_functions: The number of functions behind a recommendation; the protocol's
            if ``None``.
    """

    iterations: int | None = None
    noise_std: float | None = None
    noise_variance: float | None = None
    default_model: bool = False
    num_functions: int | None = None

    def apply(self, name: str) -> Protocol:
        """The protocol of a problem with these changes.

        Args:
            name: The problem.

        Returns:
            The protocol.
        """
        rules = protocol(name)
        factory: Any = DefaultGP() if self.default_model else rules.model_factory
        if self.noise_variance is not None:
            factory = replace(factory, noise_variance=self.noise_variance)
        changes = {
            "iterations": self.iterations,
            "noise_std": self.noise_std,
            "num_functions": self.num_functions,
        }
        changes = {key: part for key, part in changes.items() if part is not None}
        return replace(rules, model_factory=factory, **changes)


# No changes.
PAPER = Settings()


@dataclass(frozen=True)
class Unit:
    """A piece of work with a file of its own.

    Attributes:
        problem: The name of the problem.
        strategy: The name of the strategy with its options, such as
            ``res:num_samples=16``.
        seeds: The seeds of the runs.
        folder: The folder of all results.
        settings: Changes to the protocol.
    """

    problem: str
    strategy: str
    seeds: tuple[int, ...]
    folder: Path
    settings: Settings = PAPER

    @property
    def path(self) -> Path:
        """The file of the unit."""
        block = f"{self.seeds[0]:03d}-{self.seeds[-1]:03d}.jsonl"
        return unit_folder(self.folder, self.problem, self.strategy) / block

    @property
    def description(self) -> str:
        """A name for people."""
        block = f"seeds {self.seeds[0]} to {self.seeds[-1]}"
        return f"{self.problem}, {self.strategy}, {block}"

    @property
    def iterations(self) -> int:
        """The number of iterations wanted."""
        return self.settings.apply(self.problem).iterations


def unit_folder(folder: Path, problem: str, strategy: str) -> Path:
    """The folder of the runs of a strategy on a problem.

    Args:
        folder: The folder of all results.
        problem: The name of the problem.
        strategy: The name of the strategy with its options.

    Returns:
        The folder.
    """
    return folder / problem / strategy.replace(":", "-").replace(",", "-")


def parse_strategy(text: str) -> tuple[str, dict[str, Any]]:
    """Take the name of a strategy with options apart.

    Args:
        text: Such as ``stable_opt:sqrt_beta=1`` or
            ``res:num_samples=1,target=characteristics``.

    Returns:
        The name and the options.
    """
    name, _, rest = text.partition(":")
    options = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        if not equals:
            raise ValueError(f"Expected name:option=value,..., got {text!r}.")
        try:
            options[key] = json.loads(value)
        except json.JSONDecodeError:  # a word
            options[key] = value
    return name, options


def build_strategy(unit: Unit, objective: Objective) -> Strategy:
    """Build the strategy of a unit.

    Args:
        unit: The unit.
        objective: One of its objectives.

    Returns:
        The strategy.
    """
    name, options = parse_strategy(unit.strategy)
    return make_strategy(
        name,
        objective.problem.domain,
        maximize=not objective.problem.is_minimization_problem,
        model_factory=objective.protocol.model_factory,
        **options,
    )


def plan_units(
    problem: str,
    strategy: str,
    seeds: list[int],
    folder: Path,
    settings: Settings = PAPER,
    block: int = 10,
) -> list[Unit]:
    """Cut the runs that are not finished into units.

    Args:
        problem: The name of the problem.
        strategy: The name of the strategy with its options.
        seeds: The seeds wanted.
        folder: The folder of all results.
        settings: Changes to the protocol.
        block: The most seeds of a unit, where its runs can be one batch.

    Returns:
        The units, those begun earlier first.
    """
    unit = Unit(problem, strategy, (seeds[0],), folder, settings)
    changed = settings.apply(problem)
    candidate = build_strategy(unit, Objective(changed.make(seeds[0]), changed, 0))
    if not (changed.same_domain and supports_replicates(candidate)):
        block = 1
    units, known = [], set()
    for path in unit_files(folder / problem):
        header = read_header(path)
        if header is None:
            continue
        # Also those of other strategies, which a report compares with this one.
        check_settings(path, header, changed)
        if header["strategy"] != strategy:
            continue
        _, records = read_unit(path)
        own = tuple(header["seeds"])
        known.update(own)
        if len(records) <= changed.iterations and set(own) & set(seeds):
            units.append(replace(unit, seeds=own))
    rest = [seed for seed in seeds if seed not in known]
    blocks = [tuple(rest[i : i + block]) for i in range(0, len(rest), block)]
    return units + [replace(unit, seeds=own) for own in blocks]


def read_unit(path: Path) -> tuple[Record | None, list[Record]]:
    """Read the file of a unit.

    Args:
        path: The file.

    Returns:
        Its first line, ``None`` if there is none yet, and the records of all complete
        iterations. A last line that was cut off is left out.
    """
    if not path.exists():
        return None, []
    with _naming(path):
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
        lines = [json.loads(line) for line in content.split(b"\n")[:-1]]
    header, *records = lines or [None]
    found = [record["iteration"] for record in records]
    if found != list(range(len(records))):
        raise ValueError(
            f"{path} is damaged: it has the iterations {found}. Remove it."
        )
    return header, records


def read_header(path: Path) -> Record | None:
    """Read the first line of a unit's file.

    Args:
        path: The file.

    Returns:
        The line, ``None`` if it is not complete.
    """
    opener: Any = gzip.open if path.suffix == ".gz" else open
    with _naming(path), opener(path, "rb") as file:
        line = file.readline()
        return json.loads(line) if line.endswith(b"\n") else None


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Name the file in errors about its content."""
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zlib.error, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is damaged: {error}. Remove it.") from error


def unit_files(folder: Path) -> list[Path]:
    """The files of units in a folder and in those below it.

    Args:
        folder: The folder.

    Returns:
        The files, packed or not, in the order of their names.
    """
    # A file that was being packed or unpacked when the process ended is there twice.
    found = set(folder.rglob("*.jsonl*"))
    return sorted(path for path in found if path.with_suffix("") not in found)


def pack_units(folder: Path, settings: Settings = PAPER) -> tuple[int, int]:
    """Compress the files of finished units; ``run_unit`` unpacks what it goes on with.

    Args:
        folder: The folder of all results.
        settings: Changes to the protocol.

    Returns:
        The number of files that were packed, and that of those which are left because
        they have fewer iterations than the protocol.
    """
    if not folder.exists():
        raise FileNotFoundError(f"There is no folder {folder}.")
    packed = left = 0
    for path in unit_files(folder):
        header, records = read_unit(path)
        if path.suffix == ".gz":
            continue
        if header and len(records) > settings.apply(header["problem"]).iterations:
            content = gzip.compress(path.read_bytes(), mtime=0)
            _replace(path, path.with_suffix(".jsonl.gz"), content)
            packed += 1
        else:
            left += 1
    return packed, left


def unpack(path: Path) -> None:
    """Unpack the file of a unit, if it is packed.

    Args:
        path: The file without its packing.
    """
    packed = path.with_suffix(".jsonl.gz")
    if packed.exists():
        with _naming(packed):
            content = gzip.decompress(packed.read_bytes())
        _replace(packed, path, content)


def _replace(old: Path, new: Path, content: bytes) -> None:
    """Write a file in place of another; at any time one of them is whole."""
    temporary = new.with_name(f"{new.name.partition('.')[0]}.new")
    temporary.write_bytes(content)
    temporary.replace(new)
    old.unlink()


def describe_model(factory: Any) -> str:
    """A model factory with those of its settings that are set.

    Args:
        factory: The factory, a dataclass.

    Returns:
        Its name and settings. One that is ``None`` changes nothing, and is left out,
        so that records from before there was such a setting can be taken up.
    """
    values = {
        field.name: getattr(factory, field.name)
        for field in fields(factory)
        if field.repr and getattr(factory, field.name) is not None
    }
    settings = ", ".join(f"{name}={value!r}" for name, value in values.items())
    return f"{type(factory).__name__}({settings})"


def describe_settings(changed: Protocol) -> Record:
    """The settings that all runs of a table have in common.

    Args:
        changed: The protocol of the runs.

    Returns:
        The settings.
    """
    return {
        "model": describe_model(changed.model_factory),
        "num_initial": changed.num_initial,
        "offset": changed.offset,
        "scale": changed.scale,
        "noise_std": changed.noise_std,
        "num_functions": changed.num_functions,
    }


def check_settings(path: Path, header: Record, changed: Protocol) -> None:
    """Raise unless a file was made with the same settings.

    Args:
        path: The file.
        header: Its first line.
        changed: The protocol that is wanted.
    """
    # Older files do not say so, but recommended the robust optimum of the mean.
    found = {"num_functions": 0, **header["settings"]}
    differences = [
        f"{name} {found.get(name)}, not {value}"
        for name, value in describe_settings(changed).items()
        if found.get(name) != value
    ]
    if differences:
        raise ValueError(
            f"{path} was made with {'; '.join(differences)}: choose another folder, or "
            "the options that it was made with."
        )


def describe_unit(unit: Unit, changed: Protocol, optima: list[float]) -> Record:
    """The first line of a unit's file.

    Args:
        unit: The unit.
        changed: Its protocol.
        optima: The robust optimal values of its problems, not scaled.

    Returns:
        What is run, with which versions, and when.
    """
    return {
        "problem": unit.problem,
        "strategy": unit.strategy,
        "seeds": list(unit.seeds),
        "optimal_values": optima,
        "settings": describe_settings(changed),
        "versions": {
            "botorch_res": botorch_res.__version__,
            "botorch": botorch.__version__,
            "gpytorch": gpytorch.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
    }


@contextmanager
def locked(path: Path) -> Iterator[int]:
    """Open a file for appending, and keep other processes from doing so.

    Args:
        path: The file.

    Yields:
        The file's descriptor.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RuntimeError(f"Another process is at work on {path}.") from error
        yield descriptor
    finally:
        os.close(descriptor)


def append(descriptor: int, record: Record) -> None:
    """Append one line in one piece, and see it through to the disk.

    Args:
        descriptor: The file's descriptor.
        record: The line.
    """
    os.write(descriptor, json.dumps(record).encode() + b"\n")
    os.fsync(descriptor)


def cut_off(descriptor: int, path: Path) -> None:
    """Cut off a last line that was not finished.

    Args:
        descriptor: The file's descriptor.
        path: The file.
    """
    os.ftruncate(descriptor, path.read_bytes().rfind(b"\n") + 1)
