"""When a study stops by its predicted regret: is the regret then what was asked for?

``python -m benchmarks.stopping`` goes through the records of runs of RES, applies the
rule ``regret < limit with 95 %`` after every few evaluations, and writes
``results/stopping.md``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from benchmarks.protocols import Objective
from benchmarks.report import RESULTS, markdown_table
from benchmarks.units import (
    PAPER,
    Settings,
    Unit,
    build_strategy,
    read_unit,
    unit_files,
    unit_folder,
)
from botorch_res.optim import predict_regret, recommend_robust_optimum

STRATEGY = "res:num_samples=16"
LIMITS = (0.3, 0.1, 0.03)
PROBABILITY = 0.95
# The rule is applied after every so many evaluations.
INTERVAL = 5
CASES = (
    ("within model", "within_model", RESULTS / "regret", PAPER, 20),
    ("Branin", "branin", RESULTS / "default_model", Settings(default_model=True), 20),
    (
        "Sinus + Linear",
        "sinus_linear",
        RESULTS / "default_model",
        Settings(default_model=True),
        20,
    ),
)
TITLE = f"""# Stopping by the predicted regret

    OMP_NUM_THREADS=1 python -m benchmarks.stopping

Recorded runs of `{STRATEGY}` are stopped when the regret of the recommendation is
below a limit with a probability of 95 %, by 64 functions that agree with the data. The
rule is applied after every {INTERVAL} evaluations, from five on. Limits and regrets are
in standard deviations of the function. "Kept": the share of the stopped runs whose true
regret is within the limit, with its standard error. The functions "within model" are
drawn from the prior of the model; those of the other problems have the default model.

"""


def stops(
    problem: str, folder: Path, settings: Settings, num_runs: int
) -> Iterator[dict[float, tuple[int, float]]]:
    """Stop runs by each of the limits.

    Args:
        problem: The problem.
        folder: The records.
        settings: Those of the records.
        num_runs: The largest number of runs.

    Yields:
        For each run and each limit that is reached, the number of evaluations, and the
        true regret of the recommendation.
    """
    left = num_runs
    for path in unit_files(unit_folder(folder, problem, STRATEGY)):
        header, records = read_unit(path)
        assert header is not None
        seeds = tuple(header["seeds"])[:left]
        left -= len(seeds)
        unit = Unit(problem, STRATEGY, seeds, folder, settings)
        changed = settings.apply(problem)
        for i, seed in enumerate(seeds):
            objective = Objective(changed.make(seed), changed, seed)
            strategy = build_strategy(unit, objective)
            points = [z for record in records for z in record["points"][i]]
            values = [y for record in records for y in record["values"][i]]
            X = torch.tensor(points, dtype=torch.double)
            Y = torch.tensor(values, dtype=torch.double).unsqueeze(-1)
            found: dict[float, tuple[int, float]] = {}
            for n in range(5, len(X) + 1, INTERVAL):
                model, domain = strategy.fit(X[:n], Y[:n]), strategy.domain
                x = recommend_robust_optimum(model, domain, strategy.maximize).x
                regret = predict_regret(model, domain, x, strategy.maximize)
                for limit in LIMITS:
                    if limit not in found and regret.probability(limit) >= PROBABILITY:
                        true = float(objective.robust_regret(x.unsqueeze(0)))
                        found[limit] = (n, true)
                if len(found) == len(LIMITS):
                    break
            yield found


def write_table(output: Path) -> Path:
    """Stop all runs and write the table.

    Args:
        output: The file to write.

    Returns:
        The file.
    """
    rows = []
    for name, problem, folder, settings, num_runs in CASES:
        runs = list(stops(problem, folder, settings, num_runs))
        for limit in LIMITS:
            stopped = [run[limit] for run in runs if limit in run]
            row = [name, f"{limit:g}", f"{len(stopped)} of {len(runs)}"]
            if stopped:
                counts, true = np.array(stopped).T
                kept = np.mean(true <= limit)
                error = np.sqrt(kept * (1.0 - kept) / len(true))
                low, high = np.quantile(counts, [0.1, 0.9])
                row.append(f"{np.median(counts):.0f} ({low:.0f} to {high:.0f})")
                row += [f"{kept:.0%} ({error:.0%})", f"{true.max():.2g}"]
            rows.append(row)
    heads = ["problem", "limit", "stopped", "evaluations (10 to 90 %)", "kept"]
    output.write_text(TITLE + markdown_table([*heads, "largest regret"], rows))
    return output


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(write_table(RESULTS / "stopping.md"))
