"""Problems with categories: ranges as they are, or cut into levels?

``python -m benchmarks.mixed`` reads the records in ``results/mixed`` and writes
``results/mixed.md``.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.comparison import Runs, read_runs
from benchmarks.protocols import Objective, protocol
from benchmarks.report import RESULTS, markdown_table

PROBLEMS = ("snap_hook", "switching_modes", "motor_catalogue")
# The forms of a row: its name, the ending of the problem's name, and the strategy.
ROWS = (
    ("RES, ranges", "", "res"),
    ("RES, 21 levels", "_levels", "res"),
    ("StableOpt, ranges", "", "stable_opt"),
    ("random, ranges", "", "random"),
)
ITERATIONS = (10, 15, 25)
TITLE = f"""# Problems with categories

Robust regret of the recommended setting, in standard deviations of the function: median
(90 % quantile) over the seeds that all rows of a problem have. All strategies have
their default settings and the default model; five random points come first. In the rows
"21 levels" the same strategy sees all ranges cut into 21 levels, and regret is that of
the same problem; the last column is the regret of the best setting among these levels.
The column "seconds" is the CPU time of a step of one run, in a batch of runs.

Commands, for the records and for this file:

    OMP_NUM_THREADS=1 python -m benchmarks regret --strategies res stable_opt random \\
        --problems {" ".join(PROBLEMS)} --folder benchmarks/results/mixed
    OMP_NUM_THREADS=1 python -m benchmarks regret --strategies res \\
        --problems {" ".join(f"{name}_levels" for name in PROBLEMS)} \\
        --folder benchmarks/results/mixed
    python -m benchmarks pack --folder benchmarks/results/mixed
    python -m benchmarks.mixed

The points of StableOpt and of random search are older than those of RES. Their
recommendations were made anew by `python -m benchmarks recommend`.

"""
NOTES = """
- Snap hook: in levels, the best thickness of POM is far from its best level, and the
  choice between steel and POM, which are nearly equal in ranges, becomes easy. Nearly
  all runs in levels end at the best level, which is as near as they can come. In
  ranges most runs come much nearer; the others end with the second best material.
- Switching modes: a setting at the end of the range, 0.018 above the best one, is a
  level, too, and both forms end there in most runs. In ranges this takes 15 iterations
  in the median, in levels 25.
- Motor catalogue: the motors are listed. Only what nature chooses is cut into levels,
  so that nothing is lost by them. Both forms find the best motor in all runs.
"""


def describe(runs: Runs, seeds: list[int]) -> list[str]:
    """The regret of runs.

    Args:
        runs: The runs.
        seeds: The seeds that count.

    Returns:
        The number of seeds, the quantiles after some iterations, and the time.
    """
    cells = [str(len(seeds))]
    kept = [runs.seeds.index(seed) for seed in seeds]
    for iteration in ITERATIONS:
        regret = runs.regret["common_robust_regret"][kept, iteration]
        middle, high = np.quantile(regret, [0.5, 0.9])
        cells.append(f"{middle:.2g} ({high:.2g})")
    return [*cells, f"{runs.seconds[:, 1:].mean():.2g}"]


def least_regret(name: str) -> str:
    """The regret of the best setting of a problem in levels.

    Args:
        name: The problem's key in ``PROTOCOLS``.

    Returns:
        The regret, or nothing if settings are not restricted to levels.
    """
    rules = protocol(name)
    problem = rules.make(0)
    settings = problem.domain.x.choices
    if settings is None:
        return ""
    return f"{float(Objective(problem, rules, 0).robust_regret(settings).min()):.2g}"


def write_comparison(folder: Path, output: Path) -> Path:
    """Compare the strategies on each problem.

    Args:
        folder: The records.
        output: The file to write.

    Returns:
        The file.
    """
    found = {(runs.problem, runs.strategy): runs for runs in read_runs(folder)}
    rows = []
    for problem in PROBLEMS:
        seeds = set.intersection(
            *(set(found[problem + end, strategy].seeds) for _, end, strategy in ROWS)
        )
        for form, ending, strategy in ROWS:
            name = problem + ending
            cells = describe(found[name, strategy], sorted(seeds))
            least = least_regret(name) if ending else ""
            rows.append([problem.replace("_", " "), form, *cells, least])
    heads = ["problem", "strategy", "seeds", *(f"after {n}" for n in ITERATIONS)]
    heads += ["seconds", "best level"]
    output.write_text(TITLE + markdown_table(heads, rows) + NOTES)
    return output


if __name__ == "__main__":
    print(write_comparison(RESULTS / "mixed", RESULTS / "mixed.md"))
