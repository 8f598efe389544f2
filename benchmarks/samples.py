"""Accuracy and cost of function samples, their worst cases and their robust optima.

Run one section, or several:

    OMP_NUM_THREADS=1 python -m benchmarks.samples statistics
    OMP_NUM_THREADS=1 python -m benchmarks.samples worst_case --problems 32
    OMP_NUM_THREADS=1 python -m benchmarks.samples robust_optimum --problems 32
    OMP_NUM_THREADS=1 python -m benchmarks.samples effort cost

Every problem is a random GP posterior on the unit cube: lengthscales log-uniform from
0.05 to 1 in each column, 1 to 100 observations (log-uniform), noise variance 1e-4,
signal variance 1, and 16 samples of its posterior: 32 problems are 512 functions.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from botorch.models import SingleTaskGP
from botorch.sampling.pathwise import draw_matheron_paths
from gpytorch.kernels import MaternKernel, RBFKernel
from scipy.optimize import minimize
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from botorch_res.domain import RobustDomain
from botorch_res.optim import WorstCaseSolver, robust_optimum
from botorch_res.sampling import Expansion, draw_fourier_samples
from tests.optim.brute_force import maximum_over_theta, minimum_over_x

NUM_SAMPLES = 16


def random_model(dim: int, seed: int, kernel: str = "rbf", t: int | None = None):
    """A GP with random lengthscales and data that follow it."""
    generator = torch.Generator().manual_seed(seed)
    uniform = torch.rand(1 + dim, generator=generator, dtype=torch.double)
    t = round(100 ** uniform[0].item()) if t is None else t
    X = torch.rand(t, dim, generator=generator, dtype=torch.double)
    module = (
        RBFKernel(ard_num_dims=dim)
        if kernel == "rbf"
        else MaternKernel(float(kernel), ard_num_dims=dim)
    ).double()
    module.lengthscale = 0.05 * 20.0 ** uniform[1:].unsqueeze(0)
    with torch.no_grad():
        covariance = module(X).to_dense() + 1e-4 * torch.eye(t, dtype=torch.double)
        normal = torch.randn(t, 1, generator=generator, dtype=torch.double)
        Y = torch.linalg.cholesky(covariance) @ normal
    model = SingleTaskGP(
        X, Y, torch.full_like(Y, 1e-4), covar_module=module, outcome_transform=None
    )
    model.mean_module.constant.data.zero_()
    return model.eval()


def unit_domain(x_dim: int, theta_dim: int, thetas: Tensor | None = None):
    """The unit cube, the last columns uncontrollable."""
    bounds = torch.zeros(2, x_dim + theta_dim, dtype=torch.double)
    bounds[1] = 1.0
    columns = range(x_dim, x_dim + theta_dim)
    return RobustDomain(bounds, list(columns), theta_choices=thetas)


def posterior_deviation(model: SingleTaskGP, z: Tensor) -> Tensor:
    """Posterior standard deviation at ``... x d`` points."""
    with torch.no_grad():
        variance = model.posterior(z.reshape(-1, 1, z.shape[-1])).variance
    return variance.sqrt().reshape(z.shape[:-1])


# --- statistics ---------------------------------------------------------------------


def run_statistics(num_seeds: int = 64) -> None:
    """Mean and covariance of many samples against the exact posterior."""
    print(
        "| kernel | method | t | mean: rms z | mean: max z | cov: rms z | cov: max z |"
        " data: max dev / sigma_n |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for kernel, method, t in [
        *(("rbf", "matheron", t) for t in (1, 10, 100, 500)),
        *(("2.5", "matheron", t) for t in (1, 10, 100, 500)),
        *(("rbf", "weight", t) for t in (1, 5, 10)),
        *(("2.5", "weight", t) for t in (1, 5, 10)),
    ]:
        model = random_model(2, seed=t, kernel=kernel, t=t)
        Z = torch.rand(
            8, 2, generator=torch.Generator().manual_seed(7), dtype=torch.double
        )
        with torch.no_grad():
            exact = model.posterior(Z)
            mean = exact.mean.squeeze(-1)
            covariance = exact.distribution.covariance_matrix
        means, covariances, deviations = [], [], []
        for seed in range(num_seeds):
            samples = draw_fourier_samples(model, 64, method=method, seed=seed)
            residual = samples(Z) - mean
            means.append(residual.mean(0))
            covariances.append(residual.mT @ residual / len(residual))
            at_data = samples(model.train_inputs[0]) - model.train_targets
            deviations.append(at_data.abs().max() / 1e-2)
        scores = []
        for draws, target in ((means, torch.zeros(8)), (covariances, covariance)):
            stacked = torch.stack(draws)
            error = stacked.std(0) / math.sqrt(num_seeds)
            z = (stacked.mean(0) - target) / error
            scores += [z.square().mean().sqrt().item(), z.abs().max().item()]
        print(
            f"| {kernel} | {method} | {t} | "
            + " | ".join(f"{score:.2f}" for score in scores)
            + f" | {torch.stack(deviations).max():.1f} |",
            flush=True,
        )


# --- worst case ---------------------------------------------------------------------


def run_worst_case(problems: int, num_points: int = 8) -> None:
    """Worst cases against brute force."""
    print(
        "| kernel | d_theta | functions | cases | within 1e-6 sd | above brute force "
        "by more than 1e-9 sd and not a value of f | median CPU ms (b = 8, C = 16) |"
    )
    print("|---|---|---|---|---|---|---|")
    for kernel, dim in [
        ("rbf", 1),
        ("rbf", 2),
        ("rbf", 3),
        ("2.5", 1),
        ("2.5", 2),
        ("1.5", 1),
        ("0.5", 1),
    ]:
        hits, cases, above, times = 0, 0, 0, []
        for seed in range(problems):
            model = random_model(1 + dim, seed, kernel)
            samples = draw_fourier_samples(model, NUM_SAMPLES, seed=seed)
            domain = unit_domain(1, dim)
            x = domain.sample_x(num_points, seed=seed)
            solver = WorstCaseSolver(samples, domain)
            start = time.process_time()
            worst = solver(x)
            times.append(time.process_time() - start)
            own = x.expand(NUM_SAMPLES, -1, -1)
            best = maximum_over_theta(samples, own, domain)
            finer = WorstCaseSolver(samples, domain, effort=1.6)(x).value
            best = torch.maximum(best, finer)
            z = domain.join(own, worst.theta)
            deviation = posterior_deviation(model, z)
            real = (samples(z) - worst.value).abs() <= 1e-9 * (1 + worst.value.abs())
            hits += int((worst.value >= best - 1e-6 * deviation).sum())
            above += int(((worst.value > best + 1e-9 * deviation) & ~real).sum())
            cases += best.numel()
        print(
            f"| {kernel} | {dim} | {problems * NUM_SAMPLES} | {cases} | "
            f"{100 * hits / cases:.2f} % | {above} | "
            f"{1e3 * statistics.median(times):.1f} |",
            flush=True,
        )


# --- robust optimum -----------------------------------------------------------------


def count_active(samples: Expansion, domain: RobustDomain, x: Tensor, value: Tensor):
    """How many optima are kinks (several thetas tie) and how many are on the boundary.

    A kink shows as a jump of the slope of the worst-case value between the two sides.
    """
    step = 1e-4
    solver = WorstCaseSolver(samples, domain)
    kinks = torch.zeros_like(value, dtype=torch.bool)
    for column in range(domain.x_dim):
        shift = torch.zeros_like(x)
        shift[..., column] = step
        right = solver((x + shift).clamp(0, 1).unsqueeze(-2)).value.squeeze(-1)
        left = solver((x - shift).clamp(0, 1).unsqueeze(-2)).value.squeeze(-1)
        inside = (x[..., column] > step) & (x[..., column] < 1 - step)
        kinks |= inside & ((left + right - 2 * value) / step > 1e-2)
    boundary = ((x <= 0) | (x >= 1)).any(-1)
    return int(kinks.sum()), int((boundary & ~kinks).sum())


def robust_case(x_dim: int, theta_dim: int, finite: bool, seed: int):
    """A random problem for the robust optimum."""
    model = random_model(x_dim + theta_dim, seed)
    samples = draw_fourier_samples(model, NUM_SAMPLES, seed=seed)
    thetas = None
    if finite:
        generator = torch.Generator().manual_seed(seed)
        thetas = torch.rand(
            2 + seed % 19, theta_dim, generator=generator, dtype=torch.double
        )
    return samples, unit_domain(x_dim, theta_dim, thetas)


ROBUST_CASES = {
    "1+1": (1, 1, False),
    "2+1": (2, 1, False),
    "1+2": (1, 2, False),
    "2+2": (2, 2, False),
    "1+finite": (1, 1, True),
    "2+finite": (2, 1, True),
    "3+finite": (3, 1, True),
}


def run_robust_optimum(problems: int, cases: list[str]) -> None:
    """Robust optima against the best of three searches."""
    print(
        "| d_x | d_theta | Theta | functions | within 1e-3 | within 1e-2 | worst gap | "
        "kinks | boundary | median CPU ms (C = 16) |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for x_dim, theta_dim, finite in (ROBUST_CASES[case] for case in cases):
        gaps, times, kinks, boundary = [], [], 0, 0
        for seed in range(problems):
            samples, domain = robust_case(x_dim, theta_dim, finite, seed)
            start = time.process_time()
            optimum = robust_optimum(samples, domain)
            times.append(time.process_time() - start)
            rivals = [
                robust_optimum(
                    samples, domain, 1.5, num_starts=16 * x_dim, num_steps=6
                ).x,
                minimum_over_x(samples, domain, limit=600, top=3, effort=1.0)[0],
            ]
            x = torch.cat(
                [optimum.x.unsqueeze(-2), rivals[0].unsqueeze(-2), rivals[1]], 1
            )
            if finite:
                worst = WorstCaseSolver(samples, domain)(x).value
            else:
                worst = torch.maximum(
                    maximum_over_theta(samples, x, domain),
                    WorstCaseSolver(samples, domain, 1.6)(x).value,
                )
            # The value must be right, too: an f* below the true one is an error.
            gaps.append((optimum.value - worst.amin(-1)).abs())
            found = count_active(samples, domain, optimum.x, optimum.value)
            kinks, boundary = kinks + found[0], boundary + found[1]
        gap = torch.cat(gaps)
        print(
            f"| {x_dim} | {theta_dim} | {'2-20 points' if finite else 'box'} | "
            f"{gap.numel()} | {100 * (gap <= 1e-3).double().mean():.2f} % | "
            f"{100 * (gap <= 1e-2).double().mean():.2f} % | {gap.max():.3f} | "
            f"{kinks} | {boundary} | {1e3 * statistics.median(times):.0f} |",
            flush=True,
        )


def run_effort(problems: int = 12) -> None:
    """Accuracy against time."""
    print("| d_x | d_theta | effort | within 1e-3 | median CPU ms (C = 16) |")
    print("|---|---|---|---|---|")
    for x_dim, theta_dim in ((1, 1), (2, 1), (2, 2)):
        values: dict[float, list[Tensor]] = {}
        times: dict[float, list[float]] = {}
        for seed in range(100, 100 + problems):
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
            print(
                f"| {x_dim} | {theta_dim} | {effort} | {100 * share:.2f} % | "
                f"{1e3 * statistics.median(times[effort]):.0f} |",
                flush=True,
            )


# --- cost ---------------------------------------------------------------------------


class CountOperations(TorchDispatchMode):
    """Counts the operations that reach a kernel; views are free."""

    def __init__(self) -> None:
        """Start at zero."""
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Count and go on."""
        self.count += not func.is_view
        return func(*args, **(kwargs or {}))


def alternate(*functions: Callable[[], object], repeats: int) -> list[float]:
    """Median CPU seconds of each function, measured in turns.

    CPU time on one thread: a busy machine slows all of them down alike.
    """
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(repeats + 1):
        for function, record in zip(functions, times, strict=True):
            start = time.process_time()
            function()
            record.append(time.process_time() - start)
    return [statistics.median(record[1:]) for record in times]


class NestedSearch:
    """The robust optimum of one sample by nested SciPy searches."""

    def __init__(self, samples: Expansion, index: int) -> None:
        """Copy the sample to NumPy."""
        self.w = samples.frequencies.numpy()
        self.r = samples.amplitudes[index].numpy()
        self.e = samples.angles[index].numpy()
        self.v = samples.kernel_weights[index].numpy()
        self.u = samples.centers.numpy()
        self.scale = samples.scale.numpy()[0]
        self.shift = samples.shift.numpy()[0]
        self.offset = samples.offset[index].item()

    def negative(self, theta: np.ndarray, x: float) -> tuple[float, np.ndarray]:
        """Minus the value, and minus its derivative by theta."""
        u = np.array([x, theta[0]]) / self.scale - self.shift
        phase = self.w @ u - self.e
        difference = u - self.u
        kernel = self.v * np.exp(-0.5 * (difference**2).sum(-1))
        value = self.offset + self.r @ np.cos(phase) + kernel.sum()
        slope = -(self.r * np.sin(phase)) @ self.w[:, 1] - kernel @ difference[:, 1]
        return -value, np.array([-slope / self.scale[1]])

    def worst(self, x: float) -> float:
        """The worst case by multi-start L-BFGS-B."""
        starts = np.linspace(0.0, 1.0, 12)
        results = [
            minimize(self.negative, [s], (x,), "L-BFGS-B", jac=True, bounds=[(0, 1)])
            for s in starts
        ]
        return -min(result.fun for result in results)

    def solve(self) -> float:
        """The robust optimum by multi-start Nelder-Mead, which survives kinks."""
        options = {"xatol": 1e-5, "fatol": 1e-5}
        return min(
            minimize(
                lambda x: self.worst(float(x[0])),
                [start],
                method="Nelder-Mead",
                bounds=[(0, 1)],
                options=options,
            ).fun
            for start in np.linspace(0.05, 0.95, 8)
        )


def run_cost() -> None:
    """Ratios of times measured in turns, and numbers of operations."""
    load = Path("/proc/loadavg")
    if load.exists():
        print(f"load average: {load.read_text().split()[:3]}")
    model = random_model(2, seed=3, t=30)
    samples = draw_fourier_samples(model, NUM_SAMPLES, num_features=512, seed=0)
    domain = unit_domain(1, 1)
    thetas = domain.sample_theta(64, seed=0)
    x = domain.sample_x(256, seed=0)
    own = x.expand(NUM_SAMPLES, -1, -1).clone()
    table = samples.theta_table(thetas, domain)
    paths = draw_matheron_paths(model, torch.Size([NUM_SAMPLES]))
    pairs = domain.join(x.unsqueeze(-2), thetas).flatten(0, 1)

    def evaluate_paths() -> Tensor:
        with torch.no_grad():
            return paths(pairs)

    ours, each, theirs = alternate(
        lambda: table(x), lambda: table(own), evaluate_paths, repeats=15
    )
    print("b = 256, C = 16, M = 64, F = 512, t = 30:")
    print(f"  separable, common x     {1e3 * ours:8.2f} ms")
    print(f"  separable, own x        {1e3 * each:8.2f} ms")
    print(f"  draw_matheron_paths     {1e3 * theirs:8.2f} ms")
    print(f"  ratio                   {theirs / ours:8.1f} (own x {theirs / each:.1f})")

    nested = NestedSearch(samples, 0)
    results: list[float] = []
    batch, scalar = alternate(
        lambda: robust_optimum(samples, domain),
        lambda: results.append(nested.solve()),
        repeats=3,
    )
    value = robust_optimum(samples, domain).value[0].item()
    print("robust optimum, 1 + 1 dimensions, C = 16:")
    print(f"  robust_optimum          {1e3 * batch:8.1f} ms for all 16")
    print(f"  nested SciPy            {1e3 * scalar:8.1f} ms for one of them")
    print(f"  ratio                   {16 * scalar / batch:8.0f}")
    print(f"  values                  {value:.6f} and {results[0]:.6f}")

    print("operations dispatched, without views:")
    for name, call in (
        ("theta table", lambda s, x, m: s.theta_table(m, domain)(x)),
        ("worst_case", lambda s, x, m: WorstCaseSolver(s, domain)(x)),
        ("robust_optimum", lambda s, x, m: robust_optimum(s, domain, num_starts=4)),
    ):
        counts = []
        for num_samples, b, m in ((4, 8, 16), (16, 64, 64), (64, 256, 128)):
            drawn = draw_fourier_samples(model, num_samples, seed=0)
            with CountOperations() as counter:
                call(drawn, domain.sample_x(b, seed=0), domain.sample_theta(m, seed=0))
            counts.append(counter.count)
        print(f"  {name:22s}  {counts} for (C, b, M) = (4, 8, 16), (16, 64, 64), ...")


def main() -> None:
    """Run the sections named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    sections = ["statistics", "worst_case", "robust_optimum", "effort", "cost"]
    parser.add_argument("sections", nargs="+", choices=sections)
    parser.add_argument("--problems", type=int, default=32)
    names = list(ROBUST_CASES)
    parser.add_argument("--cases", nargs="+", choices=names, default=names)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for section in arguments.sections:
        print(f"## {section}")
        if section == "worst_case":
            run_worst_case(arguments.problems)
        elif section == "robust_optimum":
            run_robust_optimum(arguments.problems, arguments.cases)
        else:
            globals()[f"run_{section}"]()


if __name__ == "__main__":
    main()
