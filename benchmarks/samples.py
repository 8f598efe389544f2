"""Accuracy and cost of function samples, their worst cases and their robust optima.

Run everything (about half an hour), some sections, or a quick look at either:

    OMP_NUM_THREADS=1 python -m benchmarks.samples
    OMP_NUM_THREADS=1 python -m benchmarks.samples statistics frequencies effort cost
    OMP_NUM_THREADS=1 python -m benchmarks.samples robust_optimum --cases 2+2
    OMP_NUM_THREADS=1 python -m benchmarks.samples worst_case --record done.jsonl
    OMP_NUM_THREADS=1 python -m benchmarks.samples --quick

The results of single problems go to the file of ``--record``; with the same file a run
that was cut off goes on where it was.

Every problem is a random GP posterior on the unit cube: lengthscales log-uniform from
0.05 to 1 in each column, 1 to 100 observations (log-uniform), noise variance 1e-4,
signal variance 1, and 16 samples of its posterior: 32 problems are 512 functions.
Sections replace their older figures in ``benchmarks/results/samples.md``, unless they
are quick or of a choice of cases.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from botorch.models import SingleTaskGP
from botorch.sampling.pathwise import (
    draw_kernel_feature_paths,
    draw_matheron_paths,
)
from torch import Tensor

from benchmarks.nested_search import NestedSearch
from benchmarks.random_problems import (
    NUM_SAMPLES,
    random_model,
    robust_case,
    unit_domain,
)
from benchmarks.report import RESULTS, alternate, run_sections
from benchmarks.sample_moments import run_frequencies, run_statistics
from botorch_res.domain import RobustDomain
from botorch_res.optim import WorstCaseSolver, robust_optimum
from botorch_res.sampling import Expansion, draw_fourier_samples
from tests.brute_force import maximum_over_theta, minimum_over_x
from tests.operation_count import OperationCount

TITLE = """# Function samples, their worst cases and their robust optima

    OMP_NUM_THREADS=1 python -m benchmarks.samples

Random GP posteriors on the unit cube: lengthscales log-uniform from 0.05 to 1, 1 to 100
observations, noise variance 1e-4, signal variance 1, 16 samples of each. Milliseconds
are medians of CPU time; compare the ratios, whose parts alternate.
"""


# The first of the random problems that the search is judged by.
FIRST_SEED = 50000
WORST_CASES = [
    ("rbf", 1),
    ("rbf", 2),
    ("rbf", 3),
    ("2.5", 1),
    ("2.5", 2),
    ("2.5", 3),
    ("1.5", 1),
    ("1.5", 2),
    ("1.5", 3),
    ("0.5", 1),
]


def posterior_deviation(model: SingleTaskGP, z: Tensor) -> Tensor:
    """Posterior standard deviation at ``... x d`` points."""
    with torch.no_grad():
        variance = model.posterior(z.reshape(-1, 1, z.shape[-1])).variance
    return variance.sqrt().reshape(z.shape[:-1])


class Record:
    """Results of problems, kept in a file so that a run that was cut off can go on."""

    def __init__(self, path: Path | None) -> None:
        """Read what is known.

        Args:
            path: A file with one JSON object in each line; nothing is kept if ``None``.
        """
        self.path = path
        self.known: dict[str, dict[str, Any]] = {}
        if path is not None and path.exists():
            for line in path.read_text().splitlines():
                self.known.update(json.loads(line))

    def __call__(
        self, name: str, compute: Callable[[], dict[str, Any]]
    ) -> dict[str, Any]:
        """Look a result up, or compute and keep it."""
        if name not in self.known:
            self.known[name] = compute()
            if self.path is not None:
                with self.path.open("a") as file:
                    file.write(json.dumps({name: self.known[name]}) + "\n")
        return self.known[name]


def total(rows: list[dict[str, Any]], name: str) -> int:
    """Sum up a column of results."""
    return sum(row[name] for row in rows)


# --- worst case ---------------------------------------------------------------------


def worst_case_problem(kernel: str, dim: int, seed: int) -> dict[str, Any]:
    """Worst cases of the samples of one problem at eight points."""
    model = random_model(1 + dim, seed, kernel)
    samples = draw_fourier_samples(model, NUM_SAMPLES, seed=seed)
    domain = unit_domain(1, dim)
    x = domain.x.sample(8, seed=seed)
    solver = WorstCaseSolver(samples, domain)
    start = time.process_time()
    worst = solver(x)
    seconds = time.process_time() - start
    own = x.expand(NUM_SAMPLES, -1, -1)
    limit, top = (64000, 24) if dim == 3 else (20000, 12)
    best = maximum_over_theta(samples, own, domain, limit, top)
    finer = WorstCaseSolver(samples, domain, effort=1.6)(x).value
    z = domain.join(own, worst.theta)
    deviation = posterior_deviation(model, z)
    gap = (torch.maximum(best, finer) - worst.value) / deviation
    # Beyond what it is worth itself: a value that the function does not have.
    excess = worst.value - samples(z)
    return {
        "seconds": seconds,
        "cases": gap.numel(),
        "misses": int((gap > 1e-6).sum()),
        "brute_misses": int(((best - worst.value) / deviation > 1e-6).sum()),
        "largest_gap": float(gap.max()),
        "above": int((excess > 1e-9 * (1 + worst.value.abs())).sum()),
        "missed_by_brute": int((worst.value - best > 1e-6 * deviation).sum()),
    }


def run_worst_case(problems: int, record: Record) -> Iterator[str]:
    """Worst cases against brute force."""
    yield (
        f"{problems * NUM_SAMPLES} functions in each setting, at 8 points each, seeds "
        f"{FIRST_SEED} to {FIRST_SEED + problems - 1}, which no setting of the search "
        "was chosen on. The truth is the larger value of a dense grid with local "
        "refinement, which knows values only, and of the search with 1.6 times the "
        "effort. Above: values that are higher than the function is at that point. "
        "Missed by brute force: cases in which the grid is more than 1e-6 sd below "
        "the search, at a point where the function has the value."
    )
    yield ""
    yield (
        "| kernel | d_theta | cases | within 1e-6 sd | of brute force alone | largest "
        "gap (sd) | above | missed by brute force | median CPU ms (b = 8, C = 16) |"
    )
    yield "|---|--:|--:|--:|--:|--:|--:|--:|--:|"
    for kernel, dim in WORST_CASES:
        rows = [
            record(
                f"worst_case {kernel} {dim} {seed}",
                partial(worst_case_problem, kernel, dim, seed),
            )
            for seed in range(FIRST_SEED, FIRST_SEED + problems)
        ]
        cases = total(rows, "cases")
        yield (
            f"| {kernel} | {dim} | {cases} | "
            f"{100 - 100 * total(rows, 'misses') / cases:.2f} % | "
            f"{100 - 100 * total(rows, 'brute_misses') / cases:.2f} % | "
            f"{max(row['largest_gap'] for row in rows):.1e} | "
            f"{total(rows, 'above')} | {total(rows, 'missed_by_brute')} | "
            f"{1e3 * statistics.median(row['seconds'] for row in rows):.1f} |"
        )


# --- robust optimum -----------------------------------------------------------------


def count_active(samples: Expansion, domain: RobustDomain, x: Tensor, value: Tensor):
    """How many optima are kinks (several thetas tie) and how many are on the boundary.

    A kink shows as a jump of the slope of the worst-case value between the two sides.
    """
    step = 1e-4
    solver = WorstCaseSolver(samples, domain)
    kinks = torch.zeros_like(value, dtype=torch.bool)
    for column in range(domain.x.dim):
        shift = torch.zeros_like(x)
        shift[..., column] = step
        right = solver((x + shift).clamp(0, 1).unsqueeze(-2)).value.squeeze(-1)
        left = solver((x - shift).clamp(0, 1).unsqueeze(-2)).value.squeeze(-1)
        inside = (x[..., column] > step) & (x[..., column] < 1 - step)
        kinks |= inside & ((left + right - 2 * value) / step > 1e-2)
    boundary = ((x <= 0) | (x >= 1)).any(-1)
    return int(kinks.sum()), int((boundary & ~kinks).sum())


ROBUST_CASES = {
    "1+1": (1, 1, False),
    "2+1": (2, 1, False),
    "1+2": (1, 2, False),
    "2+2": (2, 2, False),
    "1+finite": (1, 1, True),
    "2+finite": (2, 1, True),
    "3+finite": (3, 1, True),
}


def robust_optimum_problem(case: str, seed: int) -> dict[str, Any]:
    """Robust optima of the samples of one problem."""
    x_dim, theta_dim, finite = ROBUST_CASES[case]
    samples, domain = robust_case(x_dim, theta_dim, finite, seed)
    start = time.process_time()
    optimum = robust_optimum(samples, domain)
    seconds = time.process_time() - start
    more = {"top": 24, "zooms": 40, "limit": 4000} if finite else {}
    brute = minimum_over_x(samples, domain, **more)
    rival = robust_optimum(samples, domain, 1.5, num_starts=16 * x_dim, num_steps=6)
    x = torch.cat([optimum.x.unsqueeze(-2), rival.x.unsqueeze(-2), brute], dim=-2)
    worst = WorstCaseSolver(samples, domain, 1.6)(x).value
    if not finite:
        worst = torch.maximum(worst, maximum_over_theta(samples, x, domain))
    # The value must be right, too: an f* below the true one is an error.
    best, brute_best = worst.amin(-1), worst[:, 2:].amin(-1)
    kinks, boundary = count_active(samples, domain, optimum.x, optimum.value)
    return {
        "seconds": seconds,
        "gap": (optimum.value - best).abs().tolist(),
        "brute_gap": (optimum.value - brute_best).tolist(),
        "kinks": kinks,
        "boundary": boundary,
    }


def run_robust_optimum(
    problems: int, cases: list[str], record: Record
) -> Iterator[str]:
    """Robust optima against brute force."""
    yield (
        f"{problems * NUM_SAMPLES} functions in each setting, seeds {FIRST_SEED} to "
        f"{FIRST_SEED + problems - 1}, which no setting of the search was chosen on. "
        "The best known is the smallest worst case (by a dense grid of thetas with "
        "local refinement) at the points of three searches: ours, ours with 1.5 times "
        "the effort, twice the steps and more starts, and brute force: a dense grid of "
        "x and theta with local refinement, which knows values only. The next columns "
        "say how often brute force alone is lower, and how often it is higher, by more "
        "than 1e-3."
    )
    yield ""
    yield (
        "| d_x | d_theta | Theta | within 1e-3 | within 1e-2 | worst gap | "
        "brute force lower | higher | kinks | boundary | median CPU ms (C = 16) |"
    )
    yield "|--:|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|"
    for case in cases:
        x_dim, theta_dim, finite = ROBUST_CASES[case]
        rows = [
            record(
                f"robust_optimum {case} {seed}",
                partial(robust_optimum_problem, case, seed),
            )
            for seed in range(FIRST_SEED, FIRST_SEED + problems)
        ]
        gap = torch.tensor([value for row in rows for value in row["gap"]])
        brute = torch.tensor([value for row in rows for value in row["brute_gap"]])
        yield (
            f"| {x_dim} | {theta_dim} | {'2-20 points' if finite else 'box'} | "
            f"{100 * (gap <= 1e-3).double().mean():.2f} % | "
            f"{100 * (gap <= 1e-2).double().mean():.2f} % | {gap.max():.1e} | "
            f"{int((brute > 1e-3).sum())} | {int((brute < -1e-3).sum())} | "
            f"{total(rows, 'kinks')} | {total(rows, 'boundary')} | "
            f"{1e3 * statistics.median(row['seconds'] for row in rows):.0f} |"
        )


def run_effort(problems: int) -> Iterator[str]:
    """Accuracy against time."""
    yield "Shares of robust optima within 1e-3 of the best of all efforts."
    yield ""
    yield "| d_x | d_theta | effort | within 1e-3 | median CPU ms (C = 16) |"
    yield "|--:|--:|--:|--:|--:|"
    for x_dim, theta_dim in ((1, 1), (2, 1), (2, 2)):
        values: dict[float, list[Tensor]] = {}
        times: dict[float, list[float]] = {}
        for seed in range(FIRST_SEED, FIRST_SEED + problems):
            samples, domain = robust_case(x_dim, theta_dim, False, seed)
            for effort in (0.5, 0.75, 1.0, 1.5):
                start = time.process_time()
                optimum = robust_optimum(samples, domain, effort)
                times.setdefault(effort, []).append(time.process_time() - start)
                check = WorstCaseSolver(samples, domain, 1.6)
                value = check(optimum.x.unsqueeze(-2)).value.squeeze(-1)
                values.setdefault(effort, []).append(value)
        best = torch.stack([torch.cat(v) for v in values.values()]).amin(0)
        for effort, parts in values.items():
            share = (torch.cat(parts) - best <= 1e-3).double().mean()
            yield (
                f"| {x_dim} | {theta_dim} | {effort} | {100 * share:.2f} % | "
                f"{1e3 * statistics.median(times[effort]):.0f} |"
            )


# --- cost ---------------------------------------------------------------------------


def run_cost(quick: bool) -> Iterator[str]:
    """Ratios of times measured in turns, and numbers of operations."""
    model = random_model(2, seed=3, t=30)
    samples = draw_fourier_samples(model, NUM_SAMPLES, num_features=512, seed=0)
    domain = unit_domain(1, 1)
    yield "### Values on a set of thetas: b = 256, C = 16, M = 64, F = 512"
    yield ""
    yield from compare_paths(domain, 5 if quick else 25)
    yield ""
    yield "### Robust optima: d_x = 1, d_theta = 1, t = 30, C = 16"
    yield ""
    yield from compare_nested(samples, domain, 2 if quick else NUM_SAMPLES)
    yield ""
    yield from judge_nested(1 if quick else 16)
    yield ""
    yield "### Operations dispatched, without views"
    yield ""
    yield from count_operations(model, domain)


def compare_paths(domain: RobustDomain, repeats: int) -> Iterator[str]:
    """The table of values against BoTorch's paths at the same points."""
    thetas = domain.theta.sample(64, seed=0)
    x = domain.x.sample(256, seed=0)
    own = x.expand(NUM_SAMPLES, -1, -1).clone()
    pairs = domain.join(x.unsqueeze(-2), thetas).flatten(0, 1)
    yield (
        "Milliseconds of `theta_table(...)(x)` with all samples at the same x, with "
        "each sample at its own, with the making of the table, and of the result of "
        "`draw_matheron_paths` (1024 features, BoTorch's choice; and 512)."
    )
    yield ""
    yield (
        "| kernel | t | common x | own x | made and used | paths | paths, F = 512 | "
        "ratio | own x | made and used | F = 512 |"
    )
    yield "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    for kernel, t in (("rbf", 30), ("rbf", 100), ("2.5", 30)):
        model = random_model(2, seed=3, kernel=kernel, t=t)
        samples = draw_fourier_samples(model, NUM_SAMPLES, num_features=512, seed=0)
        table = samples.theta_table(thetas, domain)
        shape = torch.Size([NUM_SAMPLES])
        paths = draw_matheron_paths(model, shape)
        features = partial(draw_kernel_feature_paths, num_features=512)
        small = draw_matheron_paths(model, shape, prior_sampler=features)
        with torch.no_grad():
            times = alternate(
                partial(table, x),
                partial(table, own),
                lambda s=samples: s.theta_table(thetas, domain)(x),
                partial(paths, pairs),
                partial(small, pairs),
                repeats=repeats,
            )
        common, each, made, theirs, smaller = times
        yield (
            f"| {kernel} | {t} | "
            + " | ".join(f"{1e3 * value:.2f}" for value in times)
            + f" | {theirs / common:.1f} | {theirs / each:.1f} | {theirs / made:.1f} | "
            f"{smaller / common:.1f} |"
        )


# Starts for x and for theta.
NESTED_EFFORTS = ((4, 6), (8, 12))


def compare_nested(
    samples: Expansion, domain: RobustDomain, num_functions: int
) -> Iterator[str]:
    """The robust optima of all samples against nested searches, one after another."""
    efforts = NESTED_EFFORTS
    values: list[list[float]] = [[] for _ in efforts]
    times: list[list[float]] = [[] for _ in range(1 + len(efforts))]
    for index in range(num_functions):
        start = time.process_time()
        ours = robust_optimum(samples, domain).value
        times[0].append(time.process_time() - start)
        for (outer, inner), found, record in zip(
            efforts, values, times[1:], strict=True
        ):
            search = NestedSearch(samples, index, outer, inner)
            start = time.process_time()
            found.append(search.solve())
            record.append(time.process_time() - start)
    batch = statistics.median(times[0])
    points = minimum_over_x(samples, domain)
    best = maximum_over_theta(samples, points, domain).amin(-1)[:num_functions]
    yield (
        "A search is right if its value is within 1e-3 of a brute force search's; "
        f"times are for {NUM_SAMPLES} functions."
    )
    yield ""
    yield "| search | right | largest error | CPU ms | ratio |"
    yield "|---|--:|--:|--:|--:|"
    rows = [("`robust_optimum`", ours[:num_functions], batch)]
    for (outer, inner), found, record in zip(efforts, values, times[1:], strict=True):
        name = f"SciPy, {outer} starts for x and {inner} for theta"
        rows.append(
            (name, best.new_tensor(found), NUM_SAMPLES * statistics.mean(record))
        )
    for name, found, seconds in rows:
        error = (found - best).abs()
        yield (
            f"| {name} | {int((error <= 1e-3).sum())} of {num_functions} | "
            f"{error.max():.1e} | {1e3 * seconds:.0f} | {seconds / batch:.0f} |"
        )


def judge_nested(problems: int) -> Iterator[str]:
    """How often the same searches are right on random problems, 4 functions each."""
    errors: list[list[Tensor]] = [[] for _ in range(1 + len(NESTED_EFFORTS))]
    for seed in range(FIRST_SEED, FIRST_SEED + problems):
        samples, domain = robust_case(1, 1, False, seed)
        found = [robust_optimum(samples, domain).value[:4]]
        for outer, inner in NESTED_EFFORTS:
            searches = [NestedSearch(samples, i, outer, inner) for i in range(4)]
            found.append(found[0].new_tensor([search.solve() for search in searches]))
        points = minimum_over_x(samples, domain)
        best = maximum_over_theta(samples, points, domain).amin(-1)[:4]
        for record, value in zip(errors, found, strict=True):
            record.append((value - best).abs())
    names = ["`robust_optimum`"]
    names += [f"SciPy, {x} starts for x and {y} for theta" for x, y in NESTED_EFFORTS]
    yield f"The same on {problems} random problems, 4 functions each:"
    yield ""
    yield "| search | right | largest error |"
    yield "|---|--:|--:|"
    for name, record in zip(names, errors, strict=True):
        error = torch.cat(record)
        right = int((error <= 1e-3).sum())
        yield f"| {name} | {right} of {len(error)} | {error.max():.1e} |"


def count_operations(model: SingleTaskGP, domain: RobustDomain) -> Iterator[str]:
    """Numbers of operations for small and large batches."""
    columns = torch.tensor(domain.theta.columns)
    sizes = ((4, 8, 16), (16, 64, 64), (64, 256, 128))
    calls: dict[str, Callable[[Expansion, Tensor, Tensor], object]] = {
        "draw_fourier_samples": lambda s, x, m: draw_fourier_samples(
            model, s.num_samples, seed=0
        ),
        "values": lambda s, x, m: s(domain.join(x, m[:1])),
        "derivatives": lambda s, x, m: s.derivatives(
            domain.join(x, m[:1]).expand(s.num_samples, -1, -1), columns
        ),
        "theta_table": lambda s, x, m: s.theta_table(m, domain)(x),
        "worst_case": lambda s, x, m: WorstCaseSolver(s, domain)(x),
        "robust_optimum": lambda s, x, m: robust_optimum(s, domain),
    }
    names = [f"C = {c}, b = {b}, M = {m}" for c, b, m in sizes]
    yield f"| | {' | '.join(names)} |"
    yield "|---|--:|--:|--:|"
    for name, call in calls.items():
        counts = []
        for num_samples, b, m in sizes:
            drawn = draw_fourier_samples(model, num_samples, seed=0)
            with OperationCount() as counter:
                call(drawn, domain.x.sample(b, seed=0), domain.theta.sample(m, seed=0))
            counts.append(str(counter.without_views))
        yield f"| `{name}` | {' | '.join(counts)} |"


def main() -> None:
    """Run the sections named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sections", nargs="*", metavar="section")
    parser.add_argument("--quick", action="store_true", help="few problems, no file")
    parser.add_argument("--problems", type=int, help="problems of each setting")
    names = list(ROBUST_CASES)
    parser.add_argument("--cases", nargs="+", choices=names, default=names)
    parser.add_argument(
        "--record", type=Path, help="file of the problems done, to go on from there"
    )
    arguments = parser.parse_args()
    record = Record(arguments.record)
    quick = arguments.quick
    problems = arguments.problems or (1 if quick else 32)
    runs: dict[str, Callable[[], Iterable[str]]] = {
        "statistics": lambda: run_statistics(quick),
        "frequencies": lambda: run_frequencies(quick),
        "worst_case": lambda: run_worst_case(problems, record),
        "robust_optimum": lambda: run_robust_optimum(problems, arguments.cases, record),
        "effort": lambda: run_effort(max(1, problems * 3 // 8)),
        "cost": lambda: run_cost(quick),
    }
    keep = not quick and arguments.cases == names
    path = RESULTS / "samples.md" if keep else None
    run_sections(runs, arguments.sections, path, TITLE)


if __name__ == "__main__":
    main()
