"""Speed of the truncated bivariate normal moments, against the closed formulas.

Run ``python -m benchmarks.kernel`` for the table, ``--threads 2`` for two threads,
``--compiled`` for torch.compile, ``--fuzz 1000000`` for a million extreme problems.

The rival is what the literature offers for the first variance: second moment less
squared mean, from the densities on the edges of the box and BoTorch's ``bvn`` for its
probability. Both are timed alternately on the same batch; the best of the repetitions
counts, in processor time for one thread, so that other work on the machine counts less.
Ours computes all moments, the rival the first variance only.
"""

import argparse
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from botorch.utils.probability.bvn import bvn
from torch import Tensor

from botorch_res.probability import truncated_bvn_moments
from tests.operation_count import OperationCount

CHUNK = 100_000
Problem = tuple[Tensor, Tensor, Tensor, Tensor]


def closed_variance(
    mean: Tensor, covariance: Tensor, lower: Tensor, upper: Tensor
) -> Tensor:
    """The first variance by closed formulas, the swapped arguments in m10 mended."""
    lower = torch.stack((torch.full_like(lower, -torch.inf), lower), -1)
    sigma = covariance.diagonal(dim1=-2, dim2=-1).sqrt()
    rho = covariance[..., 0, 1] / sigma.prod(-1)
    rest = (1.0 - rho.square()).sqrt()
    (a1, a2), (b1, b2) = (((x - mean) / sigma).unbind(-1) for x in (lower, upper))
    prob = bvn(rho, a1, a2, b1, b2)

    def edge(at: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        place = torch.where(at.isinf(), 0.0, at)
        density = torch.exp(-0.5 * place.square()) / math.sqrt(2.0 * math.pi)
        inside = torch.special.ndtr((high - rho * place) / rest)
        inside = inside - torch.special.ndtr((low - rho * place) / rest)
        psi = torch.where(at.isinf(), 0.0, density * inside)
        return psi, place * psi

    def corner(x: Tensor, y: Tensor) -> Tensor:
        away = x.isinf() | y.isinf()
        x, y = torch.where(away, 0.0, x), torch.where(away, 0.0, y)
        power = (x.square() - 2.0 * rho * x * y + y.square()) / rest.square()
        return torch.where(away, 0.0, torch.exp(-0.5 * power) / (2.0 * math.pi * rest))

    (pa1, qa1), (pb1, qb1) = edge(a1, a2, b2), edge(b1, a2, b2)
    (pa2, qa2), (pb2, qb2) = edge(a2, a1, b1), edge(b2, a1, b1)
    corners = corner(a1, a2) - corner(a1, b2) - corner(b1, a2) + corner(b1, b2)
    m10 = (pa1 - pb1 + rho * (pa2 - pb2)) / prob
    m20 = qa1 - qb1 + rho.square() * (qa2 - qb2) + rho * rest.square() * corners
    return covariance[..., 0, 0] * (1.0 + m20 / prob - m10.square())


def make_batch(size: int, dtype: torch.dtype) -> Problem:
    """Benign problems, on which the closed formulas work: bounds within two sigmas."""
    generator = torch.Generator().manual_seed(0)
    mean = torch.randn(size, 2, generator=generator, dtype=torch.float64)
    uniform = torch.rand(size, 7, generator=generator, dtype=torch.float64)
    sigma = 10.0 ** (2.0 * uniform[:, :2] - 1.0)
    cross = (1.8 * uniform[:, 2] - 0.9) * sigma.prod(-1)
    covariance = torch.stack((sigma[:, 0] ** 2, cross, cross, sigma[:, 1] ** 2), -1)
    lower = mean + sigma * (4.0 * uniform[:, 3:5] - 2.0)
    upper = lower + sigma * (0.1 + 2.0 * uniform[:, 5:])
    problem = (mean, covariance.unflatten(-1, (2, 2)), lower[:, 1], upper)
    return tuple(x.to(dtype) for x in problem)


def make_ours(compiled: bool) -> Callable[..., Tensor]:
    """Our first variance, as the acquisition function calls it."""

    def variance(*problem: Tensor) -> Tensor:
        moments = truncated_bvn_moments(*problem, validate_args=False)
        return moments.covariance[..., 0, 0]

    return torch.compile(variance, dynamic=True) if compiled else variance


def run(function: Callable[..., Tensor], problem: Problem, backward: bool) -> None:
    """Evaluate in chunks that fit into memory."""
    for chunk in zip(*(x.split(CHUNK) for x in problem), strict=True):
        if backward:
            leaves = [x.detach().requires_grad_() for x in chunk]
            torch.autograd.grad(function(*leaves).sum(), leaves)
        else:
            with torch.no_grad():
                function(*chunk)


def compare(
    ours: Callable[..., Tensor], problem: Problem, backward: bool, repetitions: int
) -> tuple[float, float]:
    """The best seconds of ours and of the closed formulas, timed alternately."""
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    best = [math.inf, math.inf]
    for _ in range(repetitions + 1):  # The first warms up, or compiles.
        for i, function in enumerate((ours, closed_variance)):
            start = clock()
            run(function, problem, backward)
            best[i] = min(best[i], clock() - start)
    return best[0], best[1]


def count_operations(backward: bool, size: int) -> int:
    """Count the operations of an eager evaluation."""
    with OperationCount() as counter:
        problem = make_batch(size, torch.float64)
        before = counter.count
        run(make_ours(compiled=False), problem, backward)
    return counter.count - before


def fuzz(count: int) -> None:
    """Evaluate extreme problems of all families, with gradients."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "probability"))
    from bvn_families import FAMILIES

    generator = torch.Generator().manual_seed(1)
    size = math.ceil(count / len(FAMILIES))
    worst = 0
    for name, family in FAMILIES.items():
        faults = 0
        for part in torch.arange(size).split(10_000):
            problem = family(len(part), generator)
            leaves = [x.detach().requires_grad_() for x in problem]
            moments = truncated_bvn_moments(*leaves)
            results = [*moments]
            for values in moments:
                results += torch.autograd.grad(values.sum(), leaves, retain_graph=True)
            faults += sum(int((~x.isfinite()).sum()) for x in results)
            variances = moments.covariance.diagonal(dim1=-2, dim2=-1)
            faults += int((variances < 0.0).sum())
        worst += faults
        print(f"{name}: {faults} faults")
    print(f"{size * len(FAMILIES)} problems, {worst} faults")


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--fuzz", type=int, default=0)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[10**k for k in range(3, 7)]
    )
    parser.add_argument("--dtypes", nargs="+", default=["float64", "float32"])
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.fuzz:
        fuzz(arguments.fuzz)
        return
    mode = "compiled" if arguments.compiled else "eager"
    print(f"{mode}, {arguments.threads} thread(s), moments per second\n")
    print("| pass | dtype | batch | ours | closed | ratio |")
    print("|---|---|---|---|---|---|")
    ours = make_ours(arguments.compiled)
    labels = {False: "forward", True: "forward + backward"}
    for backward, label in labels.items():
        for dtype in arguments.dtypes:
            for size in arguments.sizes:
                problem = make_batch(size, getattr(torch, dtype))
                repetitions = arguments.repetitions if size < 10**6 else 1
                times = compare(ours, problem, backward, repetitions)
                rates = [f"{size / t:.3g}" for t in times]
                print(
                    f"| {label} | {dtype} | {size} | {rates[0]} | {rates[1]} "
                    f"| {times[1] / times[0]:.2f} |",
                    flush=True,
                )
    if not arguments.compiled:
        print("\n| pass | operations, batch 1000 | batch 2000 |\n|---|---|---|")
        for backward, label in labels.items():
            counts = [count_operations(backward, size) for size in (1000, 2000)]
            print(f"| {label} | {counts[0]} | {counts[1]} |")


if __name__ == "__main__":
    main()
