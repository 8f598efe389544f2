"""Runs of strategies on problems, one record for each iteration, and resumable.

A unit of work is a problem, a strategy and a block of seeds. Its file, of JSON lines,
begins with what was run (the settings, the versions, the date), and gets one line for
each iteration, with a list entry for each seed. A strategy keeps nothing between
iterations, so that a unit which was interrupted goes on from the points in its file as
if nothing had happened. Blocks of several seeds are run as one batch where the strategy
and the problem allow it.

In every line: the ``points`` evaluated and their ``values``; the ``recommended`` points
``(x, theta)``, the robust optimum of the posterior mean; the regrets of these,
``common_robust_regret`` and ``common_inference_regret``; the regrets of what the
strategy itself recommends by the paper's protocol, ``own_robust_regret`` and
``own_inference_regret``: that is the last point, and for Robust Entropy Search the
common recommendation, so that its lines do without; the seconds of fit, recommendation
and ``acquisition`` for the whole block (CPU time, which other work on the machine does
not disturb; with a CUDA device wall-clock time); and the warnings raised, by their
category. Points and values are exact, recommendations and regrets are rounded.
``pack_units`` compresses the files of finished units.
"""

from __future__ import annotations

import fcntl
import gzip
import json
import os
import platform
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import botorch
import gpytorch
import torch
from botorch.models.model import Model
from torch import Tensor

import botorch_res
from benchmarks.protocols import Objective, Protocol, protocol
from botorch_res.optim import recommend_robust_optimum
from botorch_res.strategies import (
    Strategy,
    make_strategy,
    propose_replicates,
    recommend_replicates,
    supports_replicates,
)

Record = dict[str, Any]
# Seconds between two lines about the progress of a unit.
PROGRESS_INTERVAL = 60.0
clock = time.perf_counter if torch.cuda.is_available() else time.process_time


@dataclass(frozen=True)
class Settings:
    """What to run besides the names: changes to the protocols.

    Attributes:
        iterations: The number of iterations; the protocol's if ``None``.
        noise_std: The noise of the evaluations; the protocol's if ``None``.
    """

    iterations: int | None = None
    noise_std: float | None = None

    def apply(self, name: str) -> Protocol:
        """The protocol of a problem with these changes.

        Args:
            name: The problem.

        Returns:
            The protocol.
        """
        given = asdict(self).items()
        changes = {key: value for key, value in given if value is not None}
        return replace(protocol(name), **changes)


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
    settings: Settings = Settings()

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
        text: Such as ``stable_opt:sqrt_beta=1`` or ``res:num_samples=1``.

    Returns:
        The name and the options.
    """
    name, _, rest = text.partition(":")
    options = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        if not equals:
            raise ValueError(f"Expected name:option=value,..., got {text!r}.")
        options[key] = json.loads(value)
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
    settings: Settings = Settings(),  # noqa: B008
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
    for path in unit_files(unit.path.parent):
        header, records = read_unit(path)
        if header is None:
            continue
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
    content = path.read_bytes()
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    lines = content.split(b"\n")[:-1]
    header, *records = [json.loads(line) for line in lines] or [None]
    return header, records


def unit_files(folder: Path) -> list[Path]:
    """The files of units in a folder.

    Args:
        folder: The folder.

    Returns:
        The files, packed or not, in the order of their names.
    """
    return sorted(folder.glob("*.jsonl*"))


def pack_units(folder: Path, settings: Settings = Settings()) -> int:  # noqa: B008
    """Compress the files of finished units; ``run_unit`` unpacks what it goes on with.

    Args:
        folder: The folder of all results.
        settings: Changes to the protocol.

    Returns:
        The number of files.
    """
    count = 0
    for path in sorted(folder.glob("*/*/*.jsonl")):
        header, records = read_unit(path)
        if header is None:
            continue
        if len(records) > settings.apply(header["problem"]).iterations:
            packed = path.with_suffix(".jsonl.gz")
            packed.write_bytes(gzip.compress(path.read_bytes(), mtime=0))
            path.unlink()
            count += 1
    return count


def run_unit(unit: Unit, report: Callable[[str], None] | None = None) -> int:
    """Run a unit, or what is left of it.

    Args:
        unit: The unit.
        report: Is told of the progress now and then; it is printed if ``None``.

    Returns:
        The number of iterations that were made.
    """
    torch.set_num_threads(1)
    report = _print if report is None else report
    changed = unit.settings.apply(unit.problem)
    objectives = [Objective(changed.make(seed), changed, seed) for seed in unit.seeds]
    # Some problems search for their optimum now, and keep it.
    optima = [objective.problem.robust_optimal_value for objective in objectives]
    strategy = build_strategy(unit, objectives[0])
    unit.path.parent.mkdir(parents=True, exist_ok=True)
    packed = unit.path.with_suffix(".jsonl.gz")
    if packed.exists():
        unit.path.write_bytes(gzip.decompress(packed.read_bytes()))
        packed.unlink()
    with _locked(unit.path) as descriptor:
        header, records = read_unit(unit.path)
        now = describe_unit(unit, changed, optima)
        if header is None:
            _append(descriptor, now)
        elif header["settings"] != now["settings"]:
            raise ValueError(
                f"{unit.path} was made with {header['settings']}, which is not "
                f"{now['settings']}: choose another folder."
            )
        _cut_off(descriptor, unit.path)
        run = _Run(unit, objectives, strategy, records)
        begin = last = time.monotonic()
        first = len(records)
        for iteration in range(first, changed.iterations + 1):
            _append(descriptor, run.step(iteration))
            passed = time.monotonic()
            if passed - last > PROGRESS_INTERVAL:
                left = changed.iterations - iteration
                pace = (passed - begin) / (iteration + 1 - first)
                done = f"{iteration} of {changed.iterations} iterations"
                report(f"{unit.description}: {done}, {in_words(left * pace)} left")
                last = passed
    return max(0, changed.iterations + 1 - first)


class _Run:
    """The state of the runs of a unit: their points and values."""

    def __init__(
        self,
        unit: Unit,
        objectives: list[Objective],
        strategy: Strategy,
        records: list[Record],
    ) -> None:
        """Take up the runs where their records end.

        Args:
            unit: The unit.
            objectives: The objective of each seed.
            strategy: The strategy.
            records: The records that there are.
        """
        self.unit, self.objectives, self.strategy = unit, objectives, strategy
        self.together = supports_replicates(strategy) and len(objectives) > 1
        self.X = strategy.domain.bounds.new_empty(
            len(objectives), 0, strategy.domain.dim
        )
        self.Y = self.X[..., :1]
        for record in records:
            self._add(self.X.new_tensor(record["points"]), record["values"])

    def _add(self, points: Tensor, values: list[list[float]]) -> None:
        """Add ``S x n x d`` points and their ``S x n`` values."""
        self.X = torch.cat([self.X, points], dim=1)
        Y = self.X.new_tensor(values).unsqueeze(-1)
        self.Y = torch.cat([self.Y, Y], dim=1)

    def step(self, iteration: int) -> Record:
        """Evaluate the next points and recommend.

        Args:
            iteration: The number of the iteration; 0 makes the initial points.

        Returns:
            The record.
        """
        with warnings.catch_warnings(record=True) as raised:
            warnings.simplefilter("always")
            start = clock()
            points = self._propose(iteration)
            acquisition = clock() - start
            values = [
                objective(own, iteration).tolist()
                for objective, own in zip(self.objectives, points, strict=True)
            ]
            self._add(points, values)
            start = clock()
            model = self.strategy.fit(*self._data())
            fit = clock() - start
            common = self._recommend(model)
            recommendation = clock() - start - fit
        own = {}
        if not self.unit.strategy.startswith("res"):
            own = self._regret("own", self.X[:, -1])
        return {
            "iteration": iteration,
            "points": points.tolist(),
            "values": values,
            "recommended": [_rounded(z, 9) for z in common],
            **self._regret("common", common),
            **own,
            "fit_seconds": round(fit, 4),
            "recommendation_seconds": round(recommendation, 4),
            "acquisition_seconds": round(acquisition, 4),
            "warnings": dict(Counter(w.category.__name__ for w in raised)),
        }

    def _data(self) -> tuple[Tensor, Tensor]:
        """The data of the model: of all runs at once, or of the only one."""
        return (self.X, self.Y) if self.together else (self.X[0], self.Y[0])

    def _propose(self, iteration: int) -> Tensor:
        """The next ``S x n x d`` points."""
        seeds = self.unit.seeds
        if iteration == 0:
            count = self.objectives[0].protocol.num_initial
            domains = [objective.problem.domain for objective in self.objectives]
            pairs = zip(domains, seeds, strict=True)
            return torch.stack([domain.sample(count, seed) for domain, seed in pairs])
        own = [10_000 * seed + iteration for seed in seeds]
        if self.together:
            points = propose_replicates(self.strategy, *self._data(), own)
            return points.unsqueeze(1)
        return self.strategy.propose(*self._data(), seed=own[0]).unsqueeze(0)

    def _recommend(self, model: Model) -> Tensor:
        """The ``S x d`` robust optima of the posterior means."""
        strategy = self.strategy
        if self.together:
            best = recommend_replicates(strategy, self.X, self.Y)
            return strategy.domain.join(best.x, best.theta)
        best = recommend_robust_optimum(model, strategy.domain, strategy.maximize)
        return strategy.domain.join(best.x, best.theta).unsqueeze(0)

    def _regret(self, name: str, z: Tensor) -> dict[str, list[float]]:
        """The regrets of ``S x d`` points."""
        x, _ = self.strategy.domain.split(z)
        runs = list(enumerate(self.objectives))
        robust = [objective.robust_regret(x[i : i + 1]) for i, objective in runs]
        inference = [objective.inference_regret(z[i : i + 1]) for i, objective in runs]
        return {
            f"{name}_robust_regret": _rounded(torch.cat(robust), 6),
            f"{name}_inference_regret": _rounded(torch.cat(inference), 6),
        }


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
        "settings": {
            "model": repr(changed.model_factory),
            "num_initial": changed.num_initial,
            "offset": changed.offset,
            "scale": changed.scale,
            "noise_std": changed.noise_std,
        },
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


def in_words(seconds: float) -> str:
    """A duration for people.

    Args:
        seconds: The duration.

    Returns:
        Such as ``about 3.2 h``.
    """
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= size:
            return f"about {seconds / size:.1f} {unit}"
    return f"about {seconds:.0f} s"


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    """Open a file for appending, and keep other processes from doing so."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RuntimeError(f"Another process is at work on {path}.") from error
        yield descriptor
    finally:
        os.close(descriptor)


def _append(descriptor: int, record: Record) -> None:
    """Append one line in one piece, and see it through to the disk."""
    os.write(descriptor, json.dumps(record).encode() + b"\n")
    os.fsync(descriptor)


def _cut_off(descriptor: int, path: Path) -> None:
    """Cut off a last line that was not finished."""
    os.ftruncate(descriptor, path.read_bytes().rfind(b"\n") + 1)


def _rounded(values: Tensor, digits: int) -> list[float]:
    """Numbers with so many digits, to save space."""
    return [float(f"{value:.{digits}g}") for value in values.tolist()]


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
