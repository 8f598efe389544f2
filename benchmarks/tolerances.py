"""Problems with tolerances: in one column or in two parts, and with which method?

``python -m benchmarks.tolerances`` compares the records in ``results/tolerances`` with
one another, and with those in ``results/regret``, and writes ``results/tolerances.md``.
Both forms of a problem have the same robust optimum, the same units of regret and the
same number of initial points; but in two parts a model has a column for the setting and
others for the deviation, and with tolerances it has one for their sum.
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
PEERS = {
    STRATEGY: "Robust Entropy Search",
    "stable_opt:sqrt_beta=1": "StableOpt, beta = 1",
    "stable_opt:sqrt_beta=2": "StableOpt, beta = 4",
    "thompson": "Thompson sampling",
    "worst_case_nei": "worst-case qLogNEI",
    "random": "random",
}
OTHERS = ("gaussian_valleys", "tolerance_rosenbrock")
TITLE = f"""# Tolerances: in one column or in two parts, and against other methods

Robust regret of the recommended setting, in standard deviations of the function: median
(quartiles), after half of the iterations and after all.

Commands, for the records of the form with tolerances and for this file:

    OMP_NUM_THREADS=1 python -m benchmarks regret \\
        --strategies {" ".join(PEERS)} \\
        --problems {" ".join((*PAIRS, *OTHERS))} \\
        --seeds 10 --folder benchmarks/results/tolerances
    python -m benchmarks pack --folder benchmarks/results/tolerances
    python -m benchmarks.tolerances

## One column or two parts

The strategy is `{STRATEGY}`. In two parts: the seeds that the form with
tolerances has, and all seeds. The hyperparameters of the polynomial are fixed in both
forms, to those of the maximum likelihood of 500 points of the form; those of Sinus +
Linear are fitted at every step.

"""
NOTES = """
- Polynomial: RES and StableOpt are equally good. StableOpt's lead is within its
  quartiles, and it takes a fifteenth of the time. Worst-case qLogNEI stops improving.
- Sinus + Linear: RES is best by a factor of ten. A quarter of the runs of StableOpt and
  of Thompson sampling end in the wrong valley.
- Gaussian valleys: RES is best after half of the iterations and after all. After all,
  StableOpt is nearly as good.
- Rosenbrock: RES is not best. After half of the iterations StableOpt with beta = 1 and
  Thompson sampling are ahead; in the end all regrets are within 0.0025 standard
  deviations, and RES has the largest median. Five seeds cannot tell the others apart.
"""
PEERS_TITLE = """
## Against other methods

All methods have the same model, seeds and initial points, and their recommendation is
the robust optimum of the posterior mean. The first two problems are those above. In the
others all hyperparameters are fitted at every step, and there are five initial points.
Rows with fewer seeds have the first ones, for want of time. Worst-case qLogNEI is
BoTorch's `qLogNoisyExpectedImprovement` with the risk measure `WorstCase`, equal to
that of `InputPerturbation`, with all perturbations of a finite set, or 32 of a box. It
says what to set, and the worst deviation by the posterior mean is evaluated. StableOpt
is that of the package, on the same model of the perturbed input. The column "seconds"
is the CPU time of a step of one run, in a batch of runs where the method allows it.

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


def compare_forms(found: list[Runs], twins: list[Runs]) -> str:
    """Compare the two forms of each problem.

    Args:
        found: The runs of the form with tolerances.
        twins: The runs of the form in two parts.

    Returns:
        The table.
    """
    ours, others = (
        {runs.problem: runs for runs in group if runs.strategy == STRATEGY}
        for group in (found, twins)
    )
    rows = []
    for name, twin in PAIRS.items():
        own, theirs = ours[name], others[twin]
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
    return markdown_table(heads, rows)


def compare_methods(found: list[Runs]) -> str:
    """Compare the methods on each problem with tolerances.

    Args:
        found: The runs.

    Returns:
        The table.
    """
    known = {(runs.problem, runs.strategy): runs for runs in found}
    rows = []
    for problem in (*PAIRS, *OTHERS):
        for strategy, name in PEERS.items():
            runs = known.get((problem, strategy))
            if runs is not None:
                cells = [problem.replace("_", " "), name, runs.iterations]
                seconds = f"{runs.seconds[:, 1:].mean():.2g}"
                rows.append([*cells, *describe(runs), seconds])
    heads = ["problem", "method", "iterations", "seeds", "after half", "after all"]
    return markdown_table([*heads, "seconds"], rows)


def write_comparison(folder: Path, twins: Path, output: Path) -> Path:
    """Compare the two forms of each problem, and the methods.

    Args:
        folder: The records of the form with tolerances.
        twins: The records of the form in two parts.
        output: The file to write.

    Returns:
        The file.
    """
    found = read_runs(folder)
    forms = compare_forms(found, read_runs(twins))
    output.write_text(TITLE + forms + PEERS_TITLE + compare_methods(found) + NOTES)
    return output


if __name__ == "__main__":
    print(
        write_comparison(
            RESULTS / "tolerances", RESULTS / "regret", RESULTS / "tolerances.md"
        )
    )
