"""How often worst cases and robust optima with tolerances are right.

    OMP_NUM_THREADS=1 python -m benchmarks.accuracy [--quick]

Five hundred functions of each kind of domain, against brute force. The tests do the
same, but with fewer functions of three columns, which take minutes. Rows that are in
``results/accuracy.md`` are not measured again.
"""

from __future__ import annotations

import argparse
import time
from functools import partial

import torch

from benchmarks.report import RESULTS, Table, run_sections
from tests.optim.test_accuracy import compare
from tests.problems import random_samples, sloppy_domain

TITLE = """# Worst cases and robust optima with tolerances

    OMP_NUM_THREADS=1 python -m benchmarks.accuracy

Posterior samples of random models, five models of each kind, against brute force.
"""
# Columns of x, columns that only nature controls, columns with a tolerance.
DIMS = {"1": (1, 0, 1), "1, and 1 of nature": (1, 1, 1), "2": (2, 0, 2), "3": (3, 0, 3)}
NUM_MODELS = 5


def measure(dims: tuple[int, int, int], count: int) -> list[str]:
    """A row of the table.

    Args:
        dims: The numbers of columns of x, of theta alone, and with a tolerance.
        count: The number of functions of each model.

    Returns:
        The number of functions, the shares of right worst cases and of robust optima
        that are off, the largest error of an optimum, and the seconds.
    """
    start = time.process_time()
    domain = sloppy_domain(*dims)
    found = []
    for seed in range(NUM_MODELS):
        samples, _ = random_samples(domain.dim, seed, None, count, num_features=64)
        found.append(compare(samples, domain, seed))
    shortfall, error = torch.cat(found, dim=-1)
    right = (shortfall <= 1e-7).double().mean()
    off = (error > 1e-3).double().mean()
    seconds = time.process_time() - start
    rates = f"{100 * right:.1f} %", f"{100 * off:.1f} %", f"{error.max():.1e}"
    return [str(len(error)), *rates, f"{seconds:.0f}"]


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sections", nargs="*", metavar="section")
    parser.add_argument("--quick", action="store_true", help="few functions, no file")
    arguments = parser.parse_args()
    quick = arguments.quick
    heads = ["functions", "worst cases within 1e-7", "optima off by more than 1e-3"]
    heads += ["largest error of an optimum", "CPU seconds"]
    rows = {
        (name,): partial(measure, dims, 2 if quick else 100)
        for name, dims in DIMS.items()
    }
    intro = "Errors are in prior standard deviations."
    run_sections(
        {"tolerances": lambda: Table(intro, ["columns"], heads, rows)},
        arguments.sections,
        None if quick else RESULTS / "accuracy.md",
        TITLE,
    )


if __name__ == "__main__":
    main()
