"""What the records of the regret runs say: quantiles, paired tests, times."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy.stats import wilcoxon

from benchmarks.units import read_unit, unit_files

KINDS = (
    "common_robust_regret",
    "common_inference_regret",
    "own_robust_regret",
    "own_inference_regret",
)


@dataclass(frozen=True)
class Runs:
    """The runs of a strategy on a problem, all of the same length.

    Attributes:
        problem: The name of the problem.
        strategy: The name of the strategy with its options.
        seeds: ``S`` seeds, ascending.
        regret: By its kind, ``S x (T + 1)`` regrets after 0 to ``T`` iterations.
        acquisition: ``S x (T + 1)`` seconds to find each point; those of a batch are
            divided among its members.
        seconds: ``S x (T + 1)`` the same with the fit of the model.
        headers: The first lines of the files.
    """

    problem: str
    strategy: str
    seeds: list[int]
    regret: dict[str, np.ndarray]
    acquisition: np.ndarray
    seconds: np.ndarray
    headers: list[dict]

    def from_seed(self, first: int) -> Runs:
        """Leave out the smaller seeds.

        Args:
            first: The first seed to keep.

        Returns:
            The runs of the others.
        """
        kept = np.asarray(self.seeds) >= first
        return replace(
            self,
            seeds=[seed for seed in self.seeds if seed >= first],
            regret={kind: values[kept] for kind, values in self.regret.items()},
            acquisition=self.acquisition[kept],
            seconds=self.seconds[kept],
        )

    @property
    def iterations(self) -> int:
        """The number ``T`` of iterations."""
        return self.seconds.shape[1] - 1


def read_runs(folder: Path) -> list[Runs]:
    """Read all runs.

    Args:
        folder: The folder of all results.

    Returns:
        The runs of each pair of problem and strategy. Units with fewer iterations than
        the longest of the pair, which are still under way, are left out.
    """
    files: dict[tuple[str, str], list] = {}
    settings: dict[str, tuple[Path, dict]] = {}
    for path in unit_files(folder):
        header, records = read_unit(path)
        if header is not None and records:
            first, known = settings.setdefault(
                header["problem"], (path, header["settings"])
            )
            if header["settings"] != known:
                raise ValueError(
                    f"{path} was made with {header['settings']}, but {first} with "
                    f"{known}: they cannot be compared."
                )
            name = (header["problem"], header["strategy"])
            files.setdefault(name, []).append((header, records))
    return [_join(*name, units) for name, units in files.items()]


def _join(problem: str, strategy: str, units: list[tuple[dict, list[dict]]]) -> Runs:
    """Put the units of a pair together."""
    longest = max(len(records) for _, records in units)
    units = [unit for unit in units if len(unit[1]) == longest]
    seeds = [seed for header, _ in units for seed in header["seeds"]]
    if len(set(seeds)) < len(seeds):
        raise ValueError(
            f"There are several records of {problem}, {strategy} for some of the seeds "
            f"{sorted(seeds)}."
        )
    order = np.argsort(seeds)

    def column(*names: str) -> np.ndarray:
        blocks = []
        for header, records in units:
            rows = [
                sum(np.asarray(_entry(record, name)) for name in names)
                for record in records
            ]
            rows = [np.broadcast_to(row, len(header["seeds"])) for row in rows]
            share = len(header["seeds"]) if names[0].endswith("seconds") else 1
            blocks.append(np.stack(rows, axis=1) / share)
        return np.concatenate(blocks)[order]

    return Runs(
        problem,
        strategy,
        sorted(seeds),
        {kind: column(kind) for kind in KINDS},
        column("acquisition_seconds"),
        column("acquisition_seconds", "fit_seconds"),
        [header for header, _ in units],
    )


def _entry(record: dict, name: str) -> object:
    """An entry of a record; a strategy without own regrets has the common ones."""
    return record.get(name, record.get(name.replace("own", "common")))


def quartiles(values: np.ndarray) -> np.ndarray:
    """The quartiles over the seeds.

    Args:
        values: ``S x ...`` values.

    Returns:
        ``3 x ...`` quartiles.
    """
    return np.quantile(values, [0.25, 0.5, 0.75], axis=0)


def iterations_to_reach(regret: np.ndarray, fraction: float) -> int | None:
    """After how many iterations the median stays below a part of the initial regret.

    Args:
        regret: ``S x (T + 1)`` regrets.
        fraction: The part of the median initial regret.

    Returns:
        The number of iterations, or ``None`` if it is above at the end.
    """
    median = np.median(regret, axis=0)
    above = np.flatnonzero(median > fraction * median[0])
    first = 0 if len(above) == 0 else int(above[-1]) + 1
    return first if first < len(median) else None


def paired_test(first: Runs, second: Runs, kind: str) -> tuple[float, float]:
    """Compare the final regrets of two strategies on the seeds that both have run.

    Args:
        first: The runs of a strategy.
        second: The runs of another one on the same problem.
        kind: The kind of regret.

    Returns:
        The two-sided p-value of Wilcoxon's signed-rank test of the differences, and the
        median of these, negative if the first strategy is better. They are taken after
        so many iterations as both have made.
    """
    last = min(first.iterations, second.iterations)
    common = sorted(set(first.seeds) & set(second.seeds))
    ours, theirs = (
        runs.regret[kind][[runs.seeds.index(seed) for seed in common], last]
        for runs in (first, second)
    )
    difference = ours - theirs
    if not difference.any():
        return 1.0, 0.0
    p_value = float(wilcoxon(difference, zero_method="zsplit").pvalue)
    return p_value, float(np.median(difference))


def holm(p_values: list[float]) -> list[float]:
    """Correct p-values for their number, by Holm's step-down method.

    Args:
        p_values: The p-values of a family of tests.

    Returns:
        The corrected ones, in the same order.
    """
    order = np.argsort(p_values)
    corrected = np.empty(len(p_values))
    largest = 0.0
    for rank, index in enumerate(order):
        largest = max(largest, (len(p_values) - rank) * p_values[index])
        corrected[index] = min(1.0, largest)
    return corrected.tolist()
