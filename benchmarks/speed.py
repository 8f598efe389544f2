"""How long a step of Robust Entropy Search takes, and how that grows.

Run as ``python -m benchmarks speed [--quick]``. It collects the ratio benchmarks of the
other modules in one dated table: each row is a ratio of two things which were measured
in turns in the same process, so that a busy machine disturbs both alike. CPU time on
one thread, wall-clock time where threads are compared, and on a CUDA device, if there
is one: then every table has a column for it.
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import torch
from botorch.exceptions.warnings import InputDataWarning
from botorch.sampling.pathwise import draw_matheron_paths

from benchmarks import acquisition, inference, kernel, replicates
from benchmarks.acquisition import quiet_rivals
from benchmarks.report import alternate, describe_run, markdown_table
from benchmarks.workload import (
    BASE,
    GROWTH,
    compare_halves,
    count,
    make_problem,
    make_work,
)
from botorch_res.inference.sweep import Sites
from botorch_res.models import ExactGPView
from botorch_res.optim import WorstCaseSolver
from botorch_res.plotting.figure import new_figure
from botorch_res.sampling import draw_fourier_samples


def wall(*functions: Callable[[], object], repeats: int) -> list[float]:
    """Median wall-clock seconds, measured in turns, on whatever device.

    Args:
        functions: The functions.
        repeats: How often each is called, beside the warm-up.

    Returns:
        The medians.
    """
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(repeats + 1):
        for function, record in zip(functions, times, strict=True):
            start = time.perf_counter()
            function()
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            record.append(time.perf_counter() - start)
    return [statistics.median(record[1:]) for record in times]


def measure_parts(repeats: int, quick: bool) -> str:
    """The parts of a step, and the step, against what they can be compared with.

    Args:
        repeats: How often each is timed.
        quick: Whether to leave out the rivals that take long.

    Returns:
        A table.
    """
    rows: list[list[object]] = []

    def add(name: str, own: float, other: float, rival: str) -> None:
        cells = [f"{1e3 * own:.3g}", f"{1e3 * other:.3g}", f"{own / other:.2f}"]
        rows.append([name, rival, *cells])

    for backward in (False, True):
        problem = kernel.make_batch(10_000, torch.double)
        ours = kernel.make_ours(compiled=False)
        own, other = kernel.compare(ours, problem, backward, repeats)
        name = "1e4 truncated moments" + (" with gradient" if backward else "")
        add(name, own, other, "closed formulas")
    for C in (1, 16):
        view = ExactGPView(inference.make_model(30))
        _, problem = inference.robust_problem(view, C)
        standard = inference.standard_problem(problem)
        sites = Sites(*2 * [torch.ones_like(problem.mean)])
        matrix = standard.widened_correlation + torch.eye(60, dtype=torch.double)
        own, other = alternate(
            lambda standard=standard, sites=sites: inference.one_sweep(standard, sites),
            lambda matrix=matrix: torch.linalg.cholesky_ex(matrix),
            repeats=3 * repeats,
        )
        add(f"sweep of EP, t = 30, C = {C}", own, other, "Cholesky of its size")
    model, domain = make_problem(BASE)
    samples = draw_fourier_samples(model, BASE.C, seed=0)
    solver = WorstCaseSolver(samples, domain)
    points = domain.sample(BASE.b, seed=1)
    own, other = alternate(
        lambda: solver(domain.split(points)[0]),
        lambda: samples(points),
        repeats=3 * repeats,
    )
    add("worst cases of 16 samples at 256 x", own, other, "one value of each there")
    x, thetas = domain.x.sample(BASE.b, seed=0), domain.theta.sample(64, seed=0)
    values = samples.theta_table(thetas, domain)
    pairs = domain.join(x.unsqueeze(-2), thetas).flatten(0, 1)
    paths = draw_matheron_paths(model, torch.Size([BASE.C]))
    with torch.no_grad():
        own, other = alternate(
            lambda: values(x), lambda: paths(pairs), repeats=3 * repeats
        )
    add("16 samples at 256 x and 64 thetas", own, other, "draw_matheron_paths")
    rivals = {"StableOpt": acquisition.stable_opt}
    if not quick:
        rivals["JES"] = acquisition.joint_entropy_search
        rivals["worst-case qLogNEI"] = acquisition.worst_case_improvement
    for name in ("box", "thetas"):
        space = acquisition.make_domain(name)
        methods = [acquisition.robust_entropy_search, *rivals.values()]
        own, *others = alternate(
            *(
                lambda method=method, space=space: method(space, 30, 16)
                for method in methods
            ),
            repeats=1 if quick else repeats,
        )
        for rival, other in zip(rivals, others, strict=True):
            add(f"step of RES, {name}, t = 30, C = 16", own, other, rival)
    return markdown_table(["what", "against", "ms", "against, ms", "ratio"], rows)


def measure_growth(repeats: int, quick: bool) -> tuple[str, dict[str, list[tuple]]]:
    """How the halves of a step grow with each size, the others at their base.

    Args:
        repeats: How often each is timed.
        quick: Whether to leave out the largest sizes.

    Returns:
        A table, and for each size the values with the two ratios.
    """
    device = "cuda" if torch.cuda.is_available() else None
    base = make_work(BASE)
    rows: list[list[object]] = []
    curves: dict[str, list[tuple]] = {}
    for name, values in GROWTH.items():
        for value in values[:2] if quick else values:
            size = BASE._replace(**{name: value})
            work = make_work(size)
            halves = compare_halves(work, base, repeats)
            ratios = [ratio for _, ratio in halves]
            curves.setdefault(name, []).append((value, *ratios))
            row: list[object] = [f"{name} = {value}"]
            for (seconds, ratio), half in zip(halves, work, strict=True):
                row += [f"{1e3 * seconds:.3g}", f"{ratio:.2f}", count(half)]
            if device is not None:
                there = make_work(size, device=device)
                row += [f"{1e3 * t:.3g}" for t in wall(*there, repeats=repeats)]
            rows.append(row)
    heads = ["size", "construct, ms", "to base", "operations"]
    heads += ["evaluate, ms", "to base", "operations"]
    if device is not None:
        heads += [f"construct on {device}, ms", f"evaluate on {device}, ms"]
    return markdown_table(heads, rows), curves


def measure_kinds(repeats: int) -> str:
    """Float32 against float64, and two threads against one.

    Args:
        repeats: How often each is timed.

    Returns:
        A table.
    """
    rows: list[list[object]] = []
    for C in (1, 16, 64):
        size = BASE._replace(C=C)
        double, single = make_work(size), make_work(size, torch.float)
        halves = [
            alternate(*pair, repeats=repeats)
            for pair in zip(single, double, strict=True)
        ]
        ratios = [f"{own / other:.2f}" for own, other in halves]

        def on_two(function: Callable[[], object]) -> Callable[[], object]:
            def call() -> object:
                torch.set_num_threads(2)
                try:
                    return function()
                finally:
                    torch.set_num_threads(1)

            return call

        for half in double:
            own, other = wall(on_two(half), half, repeats=repeats)
            ratios.append(f"{own / other:.2f}")
        rows.append([C, *ratios])
    heads = ["C", "float32 / float64, construct", "evaluate"]
    heads += ["two threads / one, construct", "evaluate"]
    return markdown_table(heads, rows)


def draw_growth(curves: dict[str, list[tuple]], path: Path) -> None:
    """Draw how a step grows.

    Args:
        curves: For each size the values with the two ratios.
        path: The file.
    """
    figure = new_figure(2.6 * len(curves), 2.8)
    for panel, (name, rows) in zip(
        figure.subplots(1, len(curves), sharey=True), curves.items(), strict=True
    ):
        values, construct, evaluate = zip(*rows, strict=True)
        panel.plot(values, construct, "o-", color="#3182bd", label="construct")
        panel.plot(values, evaluate, "s-", color="#b3001b", label="evaluate")
        panel.set_xscale("log", base=2)
        panel.set_yscale("log", base=2)
        panel.set_xticks(values, [str(value) for value in values])
        panel.minorticks_off()
        panel.set_xlabel(name)
        panel.grid(True, color="#dddddd", linewidth=0.5)
    figure.axes[0].set_ylabel("CPU time, relative to the base")
    figure.axes[0].legend(frameon=False, fontsize="small")
    figure.savefig(path)


def measure(output: Path, quick: bool = False) -> Path:
    """Measure everything, and write a dated table and a plot.

    Args:
        output: The folder.
        quick: Whether to measure little, once.

    Returns:
        The file of the table.
    """
    torch.set_num_threads(1)
    repeats = 1 if quick else 5
    output.mkdir(parents=True, exist_ok=True)
    date = f"{datetime.now(UTC):%Y-%m-%d}"
    with warnings.catch_warnings():
        quiet_rivals()
        # Single precision is what is measured here.
        warnings.filterwarnings(
            "ignore", "The model inputs are of type torch.float32", InputDataWarning
        )
        parts = measure_parts(repeats, quick)
        growth, curves = measure_growth(repeats, quick)
        kinds = measure_kinds(repeats)
        runs = [] if quick else [("res", 32, 20), ("stable_opt", 32, 20)]
        batches = [
            replicates.compare("within_model", strategy, size, t, 1, **options)
            for strategy, size, t in runs or [("res", 4, 5)]
            for options in [{"num_samples": 1} if strategy == "res" else {}]
        ]
    draw_growth(curves, output / f"speed-{date}.png")
    base = ", ".join(f"{name} = {value}" for name, value in BASE._asdict().items())
    text = [
        "# Speed and scale\n",
        f"    python -m benchmarks speed{' --quick' if quick else ''}\n",
        f"{describe_run()} Ratios are of CPU times measured in turns; those of threads "
        "of wall-clock times, which other work on the machine disturbs.\n",
        f"## Parts and steps\n\n{parts}",
        f"## Growth\n\nThe base is {base}, in a box, half of it uncontrollable; "
        "`evaluate` is with the gradient. Operations are those dispatched to the "
        f"device.\n\n{growth}\n![](speed-{date}.png)\n",
        f"## Precision and threads\n\n{kinds}",
        "## Replicates as one batch\n\n"
        + "\n".join([replicates.HEAD, "|---|---|" + "--:|" * 8, *batches]),
    ]
    path = output / f"speed-{date}.md"
    path.write_text("\n".join(text) + "\n")
    return path
