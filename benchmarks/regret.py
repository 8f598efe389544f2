"""Runs of strategies on problems, one record for each iteration, and resumable.

A strategy keeps nothing between iterations, so that a unit which was interrupted goes
on from the points in its file as if nothing had happened. Blocks of several seeds are
run as one batch where the strategy and the problem allow it.

In the record of an iteration: the ``points`` evaluated and their ``values``; the
``recommended`` points ``(x, theta)``, with the setting's worst theta by the posterior
mean; the regrets of these, ``common_robust_regret`` and ``common_inference_regret``;
the regrets of what the strategy itself recommends by the paper's protocol,
``own_robust_regret`` and ``own_inference_regret``: that is the last point, and for
Robust Entropy Search the common recommendation, so that its records do without; the
seconds of fit, recommendation and ``acquisition`` for the whole block (CPU time, which
other work on the machine does not disturb; with a CUDA device wall-clock time); and the
warnings raised, by their category. Points and values are exact, recommendations and
regrets are rounded.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from botorch.models.model import Model
from torch import Tensor

from benchmarks.protocols import Objective
from benchmarks.units import (
    Record,
    Settings,
    Unit,
    append,
    build_strategy,
    check_settings,
    cut_off,
    describe_settings,
    describe_unit,
    locked,
    read_unit,
    unpack,
)
from botorch_res.optim import recommend_robust_optimum
from botorch_res.strategies import (
    Strategy,
    propose_replicates,
    recommend_replicates,
    supports_replicates,
)

# Seconds between two lines about the progress of a unit.
PROGRESS_INTERVAL = 60.0
clock = time.perf_counter if torch.cuda.is_available() else time.process_time


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
    unpack(unit.path)
    with locked(unit.path) as descriptor:
        cut_off(descriptor, unit.path)
        header, records = read_unit(unit.path)
        if header is None:
            append(descriptor, describe_unit(unit, changed, optima))
        else:
            check_settings(unit.path, header, changed)
        run = _Run(unit, objectives, strategy, records)
        begin = last = time.monotonic()
        first = len(records)
        for iteration in range(first, changed.iterations + 1):
            append(descriptor, run.step(iteration))
            passed = time.monotonic()
            if passed - last > PROGRESS_INTERVAL:
                left = changed.iterations - iteration
                pace = (passed - begin) / (iteration + 1 - first)
                done = f"{iteration} of {changed.iterations} iterations"
                report(f"{unit.description}: {done}, {in_words(left * pace)} left")
                last = passed
    return max(0, changed.iterations + 1 - first)


def recommend_again(path: Path, folder: Path, settings: Settings) -> Path:
    """Make the recommendations of recorded runs anew, by other rules.

    No strategy's points depend on a recommendation, so that this is as good as another
    run.

    Args:
        path: The file of the unit.
        folder: The folder of all results to write to; it can be that of the file.
        settings: The settings of the recommendations.

    Returns:
        The new file.
    """
    torch.set_num_threads(1)
    header, records = read_unit(path)
    if header is None:
        raise ValueError(f"There are no records in {path}.")
    problem, strategy = header["problem"], header["strategy"]
    unit = Unit(problem, strategy, tuple(header["seeds"]), folder, settings)
    changed = settings.apply(problem)
    before = header["settings"].get("num_functions", 0)
    check_settings(path, header, replace(changed, num_functions=before))
    objectives = [Objective(changed.make(seed), changed, seed) for seed in unit.seeds]
    run = _Run(unit, objectives, build_strategy(unit, objectives[0]), [])
    header = {**header, "settings": describe_settings(changed)}
    lines = [header]
    for record in records:
        run.add(record)
        lines.append({**record, **run.recommend()})
    unit.path.parent.mkdir(parents=True, exist_ok=True)
    unit.path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return unit.path


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
            self.add(record)

    def add(self, record: Record) -> None:
        """Add the points and values of a record.

        Args:
            record: The record.
        """
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
            recommendation = self.recommend()
        own = {}
        if not self.unit.strategy.startswith("res"):
            last = self.X[:, -1]
            own = self._regret("own", self.strategy.domain.split(last)[0], last)
        return {
            "iteration": iteration,
            "points": points.tolist(),
            "values": values,
            **recommendation,
            **own,
            "acquisition_seconds": round(acquisition, 4),
            "warnings": dict(Counter(w.category.__name__ for w in raised)),
        }

    def recommend(self) -> Record:
        """Recommend, given the points and values so far.

        Returns:
            The part of a record that is about the recommendation.
        """
        start = clock()
        model = self.strategy.fit(*self._data())
        fit = clock() - start
        setting, common = self._recommend(model)
        recommendation = clock() - start - fit
        return {
            "recommended": [_rounded(z, 9) for z in common],
            **self._regret("common", setting, common),
            "fit_seconds": round(fit, 4),
            "recommendation_seconds": round(recommendation, 4),
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

    def _recommend(self, model: Model) -> tuple[Tensor, Tensor]:
        """The ``S x d_x`` recommended settings, and ``S x d`` points of worst cases."""
        strategy, count = self.strategy, self.objectives[0].protocol.num_functions
        if self.together:
            best = recommend_replicates(strategy, self.X, self.Y, count)
            return best.x, strategy.domain.join(best.x, best.theta)
        best = recommend_robust_optimum(
            model, strategy.domain, strategy.maximize, num_samples=count
        )
        point = strategy.domain.join(best.x, best.theta)
        return best.x.unsqueeze(0), point.unsqueeze(0)

    def _regret(self, name: str, x: Tensor, z: Tensor) -> dict[str, list[float]]:
        """The regrets of ``S x d_x`` settings and of ``S x d`` points."""
        runs = list(enumerate(self.objectives))
        robust = [objective.robust_regret(x[i : i + 1]) for i, objective in runs]
        inference = [objective.inference_regret(z[i : i + 1]) for i, objective in runs]
        return {
            f"{name}_robust_regret": _rounded(torch.cat(robust), 6),
            f"{name}_inference_regret": _rounded(torch.cat(inference), 6),
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


def _rounded(values: Tensor, digits: int) -> list[float]:
    """Numbers with so many digits, to save space."""
    return [float(f"{value:.{digits}g}") for value in values.tolist()]


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
