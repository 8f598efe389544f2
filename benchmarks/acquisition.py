"""What one step of Robust Entropy Search costs, against the alternatives in BoTorch.

Run all sections or some of them:

    OMP_NUM_THREADS=1 python -m benchmarks.acquisition
    OMP_NUM_THREADS=1 python -m benchmarks.acquisition steps --quick

Every row is kept as soon as it is measured. A run that was interrupted goes on with
the rows that are missing; to measure a row anew, delete it from the file.

A step constructs the acquisition function and finds one candidate with 8 restarts and
256 raw samples. Times are medians of CPU time on one thread, in runs that alternate
between the methods. The figures are kept in ``results/acquisition.md``.
"""

from __future__ import annotations

import argparse
import cProfile
import functools
import multiprocessing
import pstats
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch
from botorch.acquisition import qLogNoisyExpectedImprovement
from botorch.acquisition.joint_entropy_search import qJointEntropySearch
from botorch.acquisition.risk_measures import WorstCase
from botorch.acquisition.utils import get_optimal_samples
from botorch.models import SingleTaskGP
from botorch.models.transforms.input import AppendFeatures
from botorch.optim import optimize_acqf, optimize_acqf_mixed
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel
from linear_operator.utils.warnings import NumericalWarning
from torch import Tensor

from benchmarks.random_problems import random_model
from benchmarks.report import RESULTS, Table, alternate, run_sections
from benchmarks.workload import BASE, GROWTH, compare_halves, count, make_work
from botorch_res import RobustDomain
from botorch_res.acquisition import qRobustEntropySearch
from botorch_res.acquisition.stable_opt import StableOpt
from botorch_res.optim import optimize_robust_acqf
from tests.acquisition.jumps import largest_jump
from tests.operation_count import OperationCount

DOUBLE = {"dtype": torch.double}
TITLE = """# What a step of Robust Entropy Search costs

`python -m benchmarks.acquisition` on one thread: a step constructs the acquisition
function and finds one candidate (8 restarts, 256 raw samples). JES is BoTorch's
`qJointEntropySearch` with as many samples, worst-case qLogNEI is
`qLogNoisyExpectedImprovement` with `AppendFeatures` and `WorstCase`; both with
`optimize_acqf` and the same numbers of restarts and raw samples.
"""
LEAST_JUMP = 1e-6
RESTARTS = {"num_restarts": 8, "raw_samples": 256}


def make_domain(name: str) -> RobustDomain:
    """The domains of the benchmark, in the unit cube.

    Args:
        name: ``box``, ``thetas``, ``4-D``, ``grid``, ``1 tolerance`` or
            ``2 tolerances``.

    Returns:
        The domain.
    """
    tolerances = {"1 tolerance": {0: 0.1}, "2 tolerances": {0: 0.1, 1: 0.1}}
    dims = {name: len(columns) for name, columns in tolerances.items()}
    dim = ({"box": 2, "thetas": 2, "4-D": 4, "grid": 3} | dims)[name]
    bounds = torch.tensor([[0.0], [1.0]], **DOUBLE).expand(2, dim)
    if name in tolerances:
        return RobustDomain(bounds, tolerances=tolerances[name])
    line = torch.linspace(0.0, 1.0, 50, **DOUBLE)
    if name == "box":
        return RobustDomain(bounds, [1])
    if name == "thetas":
        thetas = torch.linspace(0.0, 1.0, 20, **DOUBLE).unsqueeze(-1)
        return RobustDomain(bounds, [1], theta_choices=thetas)
    if name == "4-D":
        return RobustDomain(bounds, [2, 3])
    thetas = torch.linspace(0.25, 0.75, 11, **DOUBLE).unsqueeze(-1)
    return RobustDomain(
        bounds,
        [2],
        x_choices=torch.cartesian_prod(line, line),
        theta_choices=thetas,
    )


def make_model(
    domain: RobustDomain, t: int, transform=None, kernel_type: type[Kernel] = RBFKernel
) -> SingleTaskGP:
    """A model of a smooth function, with fixed hyperparameters.

    Args:
        domain: The domain.
        t: The number of observations.
        transform: An input transform.
        kernel_type: The class of the kernel.

    Returns:
        The model.
    """
    X = domain.sample(t, seed=0)
    Y = (5.0 * X).sin().sum(-1, keepdim=True) + (7.0 * X.prod(-1, keepdim=True)).cos()
    Y = (Y - Y.mean()) / Y.std()
    kernel = kernel_type(ard_num_dims=domain.dim)
    kernel.lengthscale = 0.15 * domain.dim
    return SingleTaskGP(
        X,
        Y,
        train_Yvar=torch.full_like(Y, 1e-3),
        covar_module=kernel,
        outcome_transform=None,
        input_transform=transform,
    ).eval()


def robust_entropy_search(
    domain: RobustDomain, t: int, samples: int, kernel_type: type[Kernel] = RBFKernel
) -> None:
    """One step of Robust Entropy Search.

    Args:
        domain: The domain.
        t: The number of observations.
        samples: The number of function samples.
        kernel_type: The class of the model's kernel.
    """
    model = make_model(domain, t, kernel_type=kernel_type)
    acqf = qRobustEntropySearch(
        model, domain, num_samples=samples, maximize=False, seed=0
    )
    optimize_robust_acqf(acqf, domain, seed=0, **RESTARTS)


def joint_entropy_search(domain: RobustDomain, t: int, samples: int) -> None:
    """One step of BoTorch's qJointEntropySearch, which takes theta for controllable.

    Args:
        domain: The domain.
        t: The number of observations.
        samples: The number of sampled optima.
    """
    model = make_model(domain, t)
    inputs, outputs = get_optimal_samples(model, domain.bounds, num_optima=samples)
    acqf = qJointEntropySearch(model, inputs, outputs)
    optimise(acqf, domain)


def optimise(acqf, domain: RobustDomain) -> None:
    """Optimise an acquisition function over all columns, as a BoTorch user would.

    Args:
        acqf: The acquisition function.
        domain: The domain.
    """
    if domain.theta.choices is None:
        optimize_acqf(acqf, domain.bounds, q=1, **RESTARTS)
        return
    columns = domain.theta.columns
    fixed = [
        dict(zip(columns, row, strict=True)) for row in domain.theta.choices.tolist()
    ]
    # The same number of starting points in all, spread over the thetas.
    optimize_acqf_mixed(
        acqf,
        domain.bounds,
        q=1,
        num_restarts=1,
        raw_samples=RESTARTS["raw_samples"] // len(fixed),
        fixed_features_list=fixed,
    )


def worst_case_improvement(domain: RobustDomain, t: int, samples: int) -> None:
    """One step of worst-case qLogNEI through BoTorch's risk measures.

    Args:
        domain: The domain.
        t: The number of observations.
        samples: Ignored.
    """
    thetas = domain.theta.choices
    if thetas is None:
        thetas = domain.theta.sample(20, seed=0)
    model = make_model(domain, t, AppendFeatures(feature_set=thetas))
    # The transform appends in evaluation mode only: it is given x alone.
    x, _ = domain.split(domain.sample(t, seed=0))
    acqf = qLogNoisyExpectedImprovement(
        model, X_baseline=x, objective=WorstCase(n_w=len(thetas)), prune_baseline=True
    )
    optimize_acqf(acqf, domain.x.bounds, q=1, **RESTARTS)


def stable_opt(domain: RobustDomain, t: int, samples: int) -> None:
    """One step of StableOpt.

    Args:
        domain: The domain.
        t: The number of observations.
        samples: Ignored.
    """
    StableOpt(make_model(domain, t), domain, maximize=False).optimize()


def measure_step(name: str, t: int, samples: int, repeats: int) -> list[str]:
    """A row of the table of steps.

    Args:
        name: The domain's name.
        t: The number of observations.
        samples: The number of function samples.
        repeats: How often each step is timed.

    Returns:
        The seconds, and their ratios to those of the alternatives.
    """
    domain = make_domain(name)
    methods = [robust_entropy_search, stable_opt]
    if name != "grid":
        methods += [joint_entropy_search, worst_case_improvement]
    runs = [partial(method, domain, t, samples) for method in methods]
    own, stable, *others = alternate(*runs, repeats=repeats)
    ratios = [f"{own / other:.2f}" for other in others] or ["-", "-"]
    return [f"{own:.2f}", *ratios, f"{own / stable:.2f}"]


def tabulate_steps(settings: list[tuple[str, int, int]], repeats: int) -> Table:
    """The table of steps.

    Args:
        settings: Names of domains, numbers of observations and of samples.
        repeats: How often each step is timed.

    Returns:
        The table.
    """
    heads = ["RES, s", "RES / JES", "RES / worst-case qLogNEI", "RES / StableOpt"]
    rows = {
        # The comparison with JES, whose times differ from draw to draw.
        key: partial(measure_step, *key, repeats * (3 if key[0] == "box" else 1))
        for key in settings
    }
    return Table("Medians of CPU time.", ["domain", "t", "C"], heads, rows)


# Matern's default smoothness is 5/2.
KERNELS = {"squared exponential": RBFKernel, "Matern 5/2": MaternKernel}


def measure_tolerances(kernel: str, t: int, samples: int, repeats: int) -> list[str]:
    """A row of the table of tolerances.

    Args:
        kernel: A key of ``KERNELS``.
        t: The number of observations.
        samples: The number of function samples.
        repeats: How often each step is timed.

    Returns:
        The seconds of a step with 1+1 columns, and the ratios of others to them.
    """
    runs = [
        partial(robust_entropy_search, make_domain(name), t, samples, KERNELS[kernel])
        for name in ("box", "1 tolerance", "2 tolerances", "4-D")
    ]
    base, *others = alternate(*runs, repeats=repeats)
    return [f"{base:.2f}", *(f"{other / base:.2f}" for other in others)]


def tabulate_tolerances(ts: Sequence[int], repeats: int) -> Table:
    """The table of tolerances.

    Args:
        ts: The numbers of observations.
        repeats: How often each step is timed.

    Returns:
        The table.
    """
    intro = (
        "Medians of CPU time with 1 and 2 columns with a tolerance of 0.1, and ratios "
        "to 1+1 columns. 2+2 columns have as many settings and deviations as 2 columns "
        "with a tolerance."
    )
    heads = ["1+1, s", "1 tolerance / 1+1", "2 tolerances / 1+1", "2+2 / 1+1"]
    rows = {
        (kernel, t, 16): partial(measure_tolerances, kernel, t, 16, repeats)
        for kernel in KERNELS
        for t in ts
    }
    return Table(intro, ["kernel", "t", "C"], heads, rows)


def tabulate_growth(repeats: int) -> Table:
    """How construction and evaluation grow with each size, the others at their base.

    Args:
        repeats: How often each is timed.

    Returns:
        The table.
    """
    base = functools.cache(partial(make_work, BASE))

    def measure(name: str, value: int) -> list[object]:
        work = make_work(BASE._replace(**{name: value}))
        halves = compare_halves(work, base(), repeats)
        cells: list[object] = []
        for (seconds, ratio), half in zip(halves, work, strict=True):
            cells += [f"{1e3 * seconds:.3g}", f"{ratio:.2f}", count(half)]
        return cells

    sizes = ", ".join(f"{name} = {value}" for name, value in BASE._asdict().items())
    heads = ["construct, ms", "to base", "operations"]
    heads += ["evaluate, ms", "to base", "operations"]
    rows = {
        (name, value): partial(measure, name, value)
        for name, values in GROWTH.items()
        for value in values
    }
    intro = f"The base is {sizes}, in a box; `evaluate` is with the gradient."
    return Table(intro, ["size", "value"], heads, rows)


def count_operations(name: str, b: int, samples: int) -> list[int]:
    """The operations dispatched by an evaluation and its gradient.

    Args:
        name: The domain's name.
        b: The number of points.
        samples: The number of function samples.

    Returns:
        Those of the evaluation, and of both.
    """
    domain = make_domain(name)
    acqf = qRobustEntropySearch(
        make_model(domain, 20), domain, num_samples=samples, seed=0
    )
    X: Tensor = domain.sample(b, seed=1).unsqueeze(-2)
    with torch.no_grad():
        acqf(X)  # makes constants that are kept
        with OperationCount() as forward:
            acqf(X)
    X.requires_grad_()
    with OperationCount() as both:
        acqf(X).sum().backward()
    return [forward.count, both.count]


def tabulate_operations() -> Table:
    """The table of operations."""
    rows = {
        (name, b, samples): partial(count_operations, name, b, samples)
        for name in ("box", "thetas", "4-D", "grid")
        for b, samples in ((8, 4), (256, 4), (8, 64))
    }
    heads = ["forward", "forward and backward"]
    intro = "Operations dispatched by an evaluation at b points, t = 20."
    return Table(intro, ["domain", "b", "C"], heads, rows)


def peak_memory(b: int, samples: int) -> float:
    """Memory that an evaluation adds to the peak of a fresh process.

    Args:
        b: The number of points.
        samples: The number of function samples.

    Returns:
        MiB of resident memory.
    """
    torch.set_num_threads(1)
    domain = make_domain("box")
    acqf = qRobustEntropySearch(
        make_model(domain, 30), domain, num_samples=samples, seed=0
    )
    X = domain.sample(b, seed=1).unsqueeze(-2)
    peaks = []
    with torch.no_grad():
        for points in (X[:8], X):
            acqf(points)
            # Not ``getrusage``: that of a new process knows its parent's peak.
            status = Path("/proc/self/status").read_text()
            peaks.append(int(status.split("VmHWM:")[1].split()[0]))
    return (peaks[1] - peaks[0]) / 2**10


def measure_memory(b: int, samples: int) -> list[str]:
    """Peak memory of an evaluation without gradient, in a fresh process.

    Args:
        b: The number of points.
        samples: The number of function samples.

    Returns:
        The MiB.
    """
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return [f"{pool.apply(peak_memory, (b, samples)):.0f}"]


def tabulate_memory() -> Table:
    """The table of memory."""
    intro = (
        "Resident memory that an evaluation at b points adds, t = 30, one "
        "uncontrollable input; the chunks hold it down for large b C."
    )
    settings = ((256, 16), (4096, 16), (65536, 16), (4096, 64))
    rows = {key: partial(measure_memory, *key) for key in settings}
    return Table(intro, ["b", "C"], ["peak, MiB"], rows)


# What the profile asks for, and the name of the function that does it.
PARTS = {
    "robust optima of the samples": "constrained_robust_optimum",
    "expectation propagation": "expectation_propagation",
    "worst cases of candidates": "worst_cases",
    "moments of truncated pairs": "truncate_to_optimum",
    "prediction of pairs": "pair_posterior",
    "gradients": "run_backward",
}


def profile_step(name: str, t: int) -> list[str]:
    """Where the time of a step goes.

    Args:
        name: The domain's name.
        t: The number of observations.

    Returns:
        The share of each of ``PARTS``.
    """
    domain = make_domain(name)
    robust_entropy_search(domain, t, 16)
    profiler = cProfile.Profile()
    profiler.runcall(robust_entropy_search, domain, t, 16)
    stats = pstats.Stats(profiler)
    spent: dict[str, float] = {}
    for (_, _, function), (_, _, _, seconds, _) in stats.stats.items():
        for key in PARTS.values():
            if function == key or f"'{key}'" in function:
                spent[key] = max(spent.get(key, 0.0), seconds)
    shares = [spent.get(key, 0.0) / stats.total_tt for key in PARTS.values()]
    return [f"{100 * share:.0f} %" for share in shares]


def tabulate_profile() -> Table:
    """The table of shares."""
    intro = (
        "Shares of a step's time, C = 16, under Python's profiler, which favours few "
        "large operations."
    )
    settings = (("box", 30), ("box", 100), ("thetas", 30), ("4-D", 30), ("grid", 30))
    rows = {key: partial(profile_step, *key) for key in settings}
    return Table(intro, ["domain", "t"], list(PARTS), rows)


def count_jumps(kernel: str, target: str, num_lines: int) -> list[str]:
    """Look for jumps along lines that cross many ties of the worst case.

    Args:
        kernel: ``rbf``, or Matern's ``nu``.
        target: The acquisition function's target.
        num_lines: The number of problems, with one line and one sample each.

    Returns:
        The row: lines with a jump, and the largest one.
    """
    jumps = []
    for seed in range(num_lines):
        model = random_model(2, seed, kernel, t=6)
        model.covar_module.lengthscale = 0.2
        acqf = qRobustEntropySearch(
            model, make_domain("box"), num_samples=1, target=target, seed=seed
        )
        jumps.append(largest_jump(acqf))
    number = sum(jump > LEAST_JUMP for jump in jumps)
    return [f"{number} of {num_lines}", f"{max(jumps):.1e}"]


def tabulate_jumps(num_lines: int) -> Table:
    """The table of jumps."""
    intro = (
        f"Lines through the square along which the value, in nats, jumps by more than "
        f"{LEAST_JUMP}, by bisection of the 40 steepest of 1000 pieces. Lengthscales "
        "of 0.2, t = 6, C = 1: worst cases change places several times on a line."
    )
    rows = {
        (kernel, target): partial(count_jumps, kernel, target, num_lines)
        for kernel in ("rbf", "2.5", "1.5")
        for target in ("optimum", "characteristics")
    }
    return Table(intro, ["kernel", "target"], ["with a jump", "largest"], rows)


def quiet_rivals() -> None:
    """Filter the warnings that the alternatives are known to raise, and no others."""
    # Worst-case qLogNEI: thetas next to one another make a singular covariance. What
    # its search reports of this, or of its line searches, is the price of that method.
    warnings.filterwarnings("ignore", "A not p.d., added jitter", NumericalWarning)
    warnings.filterwarnings(
        "ignore", "Optimization failed (in|on the second try)", RuntimeWarning
    )


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sections", nargs="*", metavar="section")
    parser.add_argument("--quick", action="store_true", help="few settings, no file")
    arguments = parser.parse_args()
    quick = arguments.quick
    settings = [("box", t, 16) for t in (10, 30, 100)] + [("thetas", 30, 16)]
    if not quick:
        settings = [
            (name, t, samples)
            for name in ("box", "thetas", "4-D", "grid")
            for t in (10, 30, 100)
            for samples in (1, 16, 64)
        ]
    quiet_rivals()
    run_sections(
        {
            "steps": lambda: tabulate_steps(settings, repeats=1 if quick else 3),
            "tolerances": lambda: tabulate_tolerances(
                (30,) if quick else (10, 30, 100), repeats=1 if quick else 3
            ),
            "growth": lambda: tabulate_growth(repeats=1 if quick else 5),
            "operations": tabulate_operations,
            "memory": tabulate_memory,
            "profile": tabulate_profile,
            "jumps": lambda: tabulate_jumps(num_lines=2 if quick else 40),
        },
        arguments.sections,
        None if quick else RESULTS / "acquisition.md",
        TITLE,
    )


if __name__ == "__main__":
    main()
