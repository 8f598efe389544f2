"""Units of work on local processes or on a Dask cluster, with an estimate of the rest.

Every unit writes its own file, so that a run can be stopped at any time and started
again. On a cluster the workers have to see the folder of the results, and to have one
thread each.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Iterator
from concurrent.futures import (
    Executor,
    Future,
    ProcessPoolExecutor,
    as_completed,
)
from contextlib import contextmanager
from pathlib import Path

from benchmarks.regret import in_words, run_unit
from benchmarks.units import Unit, read_unit, unit_files


class Inline(Executor):
    """Does the work at once, in this process."""

    def submit(self, fn, /, *args, **kwargs):
        """Call a function.

        Args:
            fn: The function.
            args: Its arguments.
            kwargs: Its keyword arguments.

        Returns:
            A future that is done.
        """
        future: Future = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


@contextmanager
def open_executor(workers: int, dask: str | None) -> Iterator[Executor]:
    """Open the processes that do the work.

    Args:
        workers: The number of local processes; with 0 the work is done in this one.
        dask: The address of a Dask scheduler, used instead.

    Yields:
        The executor.
    """
    if dask is not None:
        from distributed import Client

        with Client(dask) as client:
            threads = max(client.nthreads().values(), default=1)
            if threads > 1:
                raise ValueError(
                    f"Expected Dask workers with one thread each, got {threads}: the "
                    "state of random generators and the CPU time are of a process. "
                    "Start them with `--nthreads 1`."
                )
            yield client.get_executor()
    elif workers == 0:
        yield Inline()
    else:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(workers, mp_context=context) as pool:
            yield pool


def run_units(units: list[Unit], workers: int = 0, dask: str | None = None) -> int:
    """Run units, and say how long the rest will take.

    Args:
        units: The units.
        workers: The number of local processes; with 0 the work is done in this one.
        dask: The address of a Dask scheduler, used instead.

    Returns:
        The number of units that failed.
    """
    estimate = Estimate(units)
    failures = 0
    with open_executor(workers, dask) as executor:
        for unit, future in _submit(executor, units):
            try:
                future.result()
                outcome = "done"
            except Exception as error:  # one unit's failure is not that of the others
                failures += 1
                outcome = f"FAILED with {type(error).__name__}: {error}"
            estimate.finish(unit)
            count = f"[{estimate.num_finished}/{len(units)}]"
            left = in_words(estimate.seconds_left())
            line = f"{count} {unit.description}: {outcome}; {left} left"
            print(line, file=sys.stderr, flush=True)
    return failures


def _submit(executor: Executor, units: list[Unit]) -> Iterator[tuple[Unit, Future]]:
    """Submit all units; yield each as it is finished."""
    if isinstance(executor, Inline):
        for unit in units:
            yield unit, executor.submit(run_unit, unit)
        return
    futures = {executor.submit(run_unit, unit): unit for unit in units}
    for future in as_completed(futures):
        yield futures[future], future


class Estimate:
    """How long the rest will take.

    An iteration of a unit counts as long as those made so far of the same problem and
    strategy did, or as all did on average if there are none. What the estimate needs it
    reads from the files, so that earlier runs count, too.

    Attributes:
        num_finished: The number of finished units.
    """

    def __init__(self, units: list[Unit]) -> None:
        """Begin to measure.

        Args:
            units: All units.
        """
        self.missing = {unit: _missing(unit) for unit in units}
        self.at_start = dict(self.missing)
        self.num_finished = 0
        self.start = time.monotonic()

    def finish(self, unit: Unit) -> None:
        """Take note of a finished unit.

        Args:
            unit: The unit.
        """
        self.missing[unit] = 0
        self.num_finished += 1

    def seconds_left(self) -> float:
        """The time that the rest will take at the pace so far."""
        pace = self._pace()
        done = left = 0.0
        for unit, missing in self.missing.items():
            missing = min(missing, _missing(unit))
            left += missing * pace[unit.path.parent]
            done += (self.at_start[unit] - missing) * pace[unit.path.parent]
        return left * (time.monotonic() - self.start) / done if done else 0.0

    def _pace(self) -> dict[Path, float]:
        """The seconds of an iteration of one seed, for each folder of units."""
        times: dict[Path, list[float]] = {unit.path.parent: [] for unit in self.missing}
        for folder, seconds in times.items():
            for path in unit_files(folder):
                header, records = read_unit(path)
                seeds = 1 if header is None else len(header["seeds"])
                seconds.extend(_seconds(record) / seeds for record in records)
        every = [second for seconds in times.values() for second in seconds] or [1.0]
        average = sum(every) / len(every)
        return {
            folder: sum(seconds) / len(seconds) if seconds else average
            for folder, seconds in times.items()
        }


def _missing(unit: Unit) -> int:
    """The iterations, of all seeds, that a unit has still to do."""
    made = len(read_unit(unit.path)[1])
    return len(unit.seeds) * (unit.iterations + 1 - made)


def _seconds(record: dict) -> float:
    """The time that an iteration took."""
    parts = ("fit", "recommendation", "acquisition")
    return sum(record[f"{part}_seconds"] for part in parts)
