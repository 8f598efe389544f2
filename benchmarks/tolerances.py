"""The same problems with tolerances and in two parts: which form is easier to solve?

``python -m benchmarks.tolerances`` compares the records in ``results/tolerances`` with
those in ``results/regret`` and writes ``results/tolerances.md``. Both forms have the
same robust optimum, the same units of regret and the same number of initial points; but
in two parts a model has a column for the setting and others for the deviation, and with
tolerances it has one for their sum.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.comparison import Runs, read_runs
from benchmarks.report import RESULTS, markdown_table

PAIRS = {
    "polynomial_tolerance": "polynomial",
    "sinus_linear_tolerance": "sinus_linear",
}
STRATEGY = "res:num_samples=16"
TITLE = f"""# Tolerances in one column or in two parts

Robust regret of the recommended setting, in standard deviations of the function: median
(quartiles), after half of the paper's iterations and after all. The strategy is
`{STRATEGY}`. In two parts: the seeds that the form with tolerances has, and all seeds.
The hyperparameters of the polynomial are fixed in both forms, to those of the maximum
likelihood of 500 points of the form; those of Sinus + Linear are fitted at every step.

Commands, for the records of the form with tolerances and for this file:

    OMP_NUM_THREADS=1 python -m benchmarks regret --strategies {STRATEGY} \\
        --problems {" ".join(PAIRS)} \\
        --seeds 10 --folder benchmarks/results/tolerances
    python -m benchmarks.tolerances

"""


def describe(runs: Runs) -> list[str]:
    """The regret of runs.

    Args:
        runs: The runs.

    Returns:
        The number of seeds, and the quartiles after half and all of the iterations.
    """
    cells = [str(len(runs.seeds))]
    for iteration in (runs.iterations // 2, runs.iterations):
        regret = runs.regret["common_robust_regret"][:, iteration]
        low, middle, high = np.quantile(regret, [0.25, 0.5, 0.75])
        cells.append(f"{middle:.2g} ({low:.2g} to {high:.2g})")
    return cells


def write_comparison(folder: Path, twins: Path, output: Path) -> Path:
    """Compare the two forms of each problem.

    Args:
        folder: The records of the form with tolerances.
        twins: The records of the form in two parts.
        output: The file to write.

    Returns:
        The file.
    """
    found, other = (
        {runs.problem: runs for runs in read_runs(path) if runs.strategy == STRATEGY}
        for path in (folder, twins)
    )
    rows = []
    for name, twin in PAIRS.items():
        own, theirs = found[name], other[twin]
        common = [theirs.seeds.index(seed) for seed in own.seeds]
        regret = {kind: values[common] for kind, values in theirs.regret.items()}
        same = replace(theirs, seeds=own.seeds, regret=regret)
        for form, runs in (
            ("with tolerances", describe(own)),
            ("in two parts, same seeds", describe(same)),
            ("in two parts, all seeds", describe(theirs)),
        ):
            rows.append([twin.replace("_", " "), form, *runs])
    iterations = "50 (polynomial) or 30", "100 or 60"
    heads = ["problem", "form", "seeds", *(f"after {n}" for n in iterations)]
    output.write_text(TITLE + markdown_table(heads, rows))
    return output


if __name__ == "__main__":
    print(
        write_comparison(
            RESULTS / "tolerances", RESULTS / "regret", RESULTS / "tolerances.md"
        )
    )
