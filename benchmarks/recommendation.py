"""Two rules of recommendation, for the same evaluations.

``python -m benchmarks.recommendation`` compares records in ``results/regret``, where
the robust optimum of the posterior mean is recommended, with those of the same runs in
``results/recommendation``, where it is the setting of the smallest expected worst case.
It writes ``results/recommendation.md``.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.comparison import read_runs
from benchmarks.report import RESULTS, markdown_table

STEPS = 5
TITLE = """# Two rules of recommendation

Robust regret of the recommended setting, in standard deviations of the function, for
the same evaluations: median (mean; 90 % quantile) over the seeds. By the first rule,
the robust optimum of the posterior mean is recommended; by the second, the setting with
the smallest expected worst case over 16 function samples, unless its advantage is
within two standard errors. Bad runs have a regret above 0.05.

Commands, for the records of the second rule and for this file:

    OMP_NUM_THREADS=1 python -m benchmarks recommend --num-functions 16 \\
        --problems within_model branin \\
        --strategies res:num_samples=16 random \\
        --output benchmarks/results/recommendation
    python -m benchmarks pack --folder benchmarks/results/recommendation
    python -m benchmarks.recommendation

"""


def write_comparison(folder: Path, twins: Path, output: Path) -> Path:
    """Compare the rules.

    Args:
        folder: The records of the second rule.
        twins: The records of the first.
        output: The file to write.

    Returns:
        The file.
    """
    before = {(runs.problem, runs.strategy): runs for runs in read_runs(twins)}
    rows = []
    for runs in read_runs(folder):
        old = before[runs.problem, runs.strategy]
        kept = [old.seeds.index(seed) for seed in runs.seeds]
        regrets = (
            old.regret["common_robust_regret"][kept],
            runs.regret["common_robust_regret"],
        )
        for step in range(1, STEPS + 1):
            iteration = step * runs.iterations // STEPS
            cells = [runs.problem.replace("_", " "), runs.strategy.partition(":")[0]]
            cells += [str(len(runs.seeds)), str(iteration)]
            bad = []
            for regret in regrets:
                own = regret[:, iteration]
                middle, high = np.quantile(own, [0.5, 0.9])
                cells.append(f"{middle:.2g} ({own.mean():.2g}; {high:.2g})")
                bad.append(f"{np.mean(own > 0.05):.0%}")
            rows.append([*cells, *bad])
    heads = ["problem", "evaluations", "seeds", "iteration", "mean", "expectation"]
    heads += ["bad, mean", "bad, expectation"]
    output.write_text(TITLE + markdown_table(heads, rows))
    return output


if __name__ == "__main__":
    print(
        write_comparison(
            RESULTS / "recommendation",
            RESULTS / "regret",
            RESULTS / "recommendation.md",
        )
    )
