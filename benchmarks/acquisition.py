"""What one step of Robust Entropy Search costs, against the alternatives in BoTorch.

Run all sections or some of them, in a quarter of an hour or in a minute:

    OMP_NUM_THREADS=1 python -m benchmarks.acquisition
    OMP_NUM_THREADS=1 python -m benchmarks.acquisition steps --quick

A step constructs the acquisition function and finds one candidate with 8 restarts and
256 raw samples. Times are medians of CPU time on one thread, in runs that alternate
between the methods. The figures are kept in ``results/acquisition.md``.
"""

from __future__ import annotations

import argparse
import cProfile
import multiprocessing
import pstats
import resource
import warnings
from collections.abc import Callable, Iterator
from functools import partial

import torch
from botorch.acquisition import qLogNoisyExpectedImprovement
from botorch.acquisition.joint_entropy_search import qJointEntropySearch
from botorch.acquisition.risk_measures import WorstCase
from botorch.acquisition.utils import get_optimal_samples
from botorch.models import SingleTaskGP
from botorch.models.transforms.input import AppendFeatures
from botorch.optim import optimize_acqf, optimize_acqf_mixed
from gpytorch.kernels import RBFKernel
from torch import Tensor

from benchmarks.report import RESULTS, alternate, describe_run, keep_section
from botorch_res import RobustDomain
from botorch_res.acquisition import qRobustEntropySearch
from botorch_res.acquisition.stable_opt import StableOpt
from botorch_res.optim.optimize_acqf import optimize_robust_acqf
from tests.operation_count import OperationCount

DOUBLE = {"dtype": torch.double}
TITLE = """# What a step of Robust Entropy Search costs

`python -m benchmarks.acquisition` on one thread: a step constructs the acquisition
function and finds one candidate (8 restarts, 256 raw samples). JES is BoTorch's
`qJointEntropySearch` with as many samples, worst-case qLogNEI is
`qLogNoisyExpectedImprovement` with `AppendFeatures` and `WorstCase`; both with
`optimize_acqf` and the same numbers of restarts and raw samples.
"""
RESTARTS = {"num_restarts": 8, "raw_samples": 256}


def make_domain(name: str) -> RobustDomain:
    """The domains of the benchmark, in the unit cube.

    Args:
        name: ``box``, ``thetas``, ``4-D`` or ``grid``.

    Returns:
        The domain.
    """
    dim = {"box": 2, "thetas": 2, "4-D": 4, "grid": 3}[name]
    bounds = torch.tensor([[0.0], [1.0]], **DOUBLE).expand(2, dim)
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


def make_model(domain: RobustDomain, t: int, transform=None) -> SingleTaskGP:
    """A model of a smooth function, with fixed hyperparameters.

    Args:
        domain: The domain.
        t: The number of observations.
        transform: An input transform.

    Returns:
        The model.
    """
    X = domain.sample(t, seed=0)
    Y = (5.0 * X).sin().sum(-1, keepdim=True) + (7.0 * X.prod(-1, keepdim=True)).cos()
    Y = (Y - Y.mean()) / Y.std()
    kernel = RBFKernel(ard_num_dims=domain.dim)
    kernel.lengthscale = 0.15 * domain.dim
    return SingleTaskGP(
        X,
        Y,
        train_Yvar=torch.full_like(Y, 1e-3),
        covar_module=kernel,
        outcome_transform=None,
        input_transform=transform,
    ).eval()


def robust_entropy_search(domain: RobustDomain, t: int, samples: int) -> None:
    """One step of Robust Entropy Search.

    Args:
        domain: The domain.
        t: The number of observations.
        samples: The number of function samples.
    """
    acqf = qRobustEntropySearch(
        make_model(domain, t), domain, num_samples=samples, maximize=False, seed=0
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
    if domain.theta_choices is None:
        optimize_acqf(acqf, domain.bounds, q=1, **RESTARTS)
        return
    columns = domain.uncontrollable
    fixed = [
        dict(zip(columns, row, strict=True)) for row in domain.theta_choices.tolist()
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
    thetas = domain.theta_choices
    if thetas is None:
        thetas = domain.sample_theta(20, seed=0)
    model = make_model(domain, t, AppendFeatures(feature_set=thetas))
    # The transform appends in evaluation mode only: it is given x alone.
    x, _ = domain.split(domain.sample(t, seed=0))
    acqf = qLogNoisyExpectedImprovement(
        model, X_baseline=x, objective=WorstCase(n_w=len(thetas)), prune_baseline=True
    )
    optimize_acqf(acqf, domain.x_bounds, q=1, **RESTARTS)


def stable_opt(domain: RobustDomain, t: int, samples: int) -> None:
    """One step of StableOpt.

    Args:
        domain: The domain.
        t: The number of observations.
        samples: Ignored.
    """
    StableOpt(make_model(domain, t), domain, maximize=False).optimize()


def steps(settings: list[tuple[str, int, int]], repeats: int) -> Iterator[str]:
    """The table of steps.

    Args:
        settings: Names of domains, numbers of observations and of samples.
        repeats: How often each step is timed.

    Yields:
        The lines of the table.
    """
    yield (
        "| domain | t | C | RES, s | RES / JES | RES / worst-case qLogNEI | "
        "RES / StableOpt |"
    )
    yield "|---|---|---|---|---|---|---|"
    for name, t, samples in settings:
        domain = make_domain(name)
        methods = [robust_entropy_search, stable_opt]
        if name != "grid":
            methods += [joint_entropy_search, worst_case_improvement]
        runs = [partial(method, domain, t, samples) for method in methods]
        own, stable, *others = alternate(*runs, repeats=repeats)
        ratios = [f"{own / other:.2f}" for other in others] or ["-", "-"]
        row = [name, str(t), str(samples), f"{own:.2f}", *ratios, f"{own / stable:.2f}"]
        yield f"| {' | '.join(row)} |"


def count_operations() -> Iterator[str]:
    """The operations dispatched by an evaluation and its gradient.

    Yields:
        The lines of the table.
    """
    yield "| domain | b | C | forward | forward and backward |"
    yield "|---|---|---|---|---|"
    for name in ("box", "thetas", "4-D"):
        domain = make_domain(name)
        for b, samples in ((8, 4), (256, 4), (8, 64)):
            acqf = qRobustEntropySearch(
                make_model(domain, 20), domain, num_samples=samples, seed=0
            )
            X: Tensor = domain.sample(b, seed=1).unsqueeze(-2)
            with OperationCount() as forward, torch.no_grad():
                acqf(X)
            X.requires_grad_()
            with OperationCount() as both:
                acqf(X).sum().backward()
            yield f"| {name} | {b} | {samples} | {forward.count} | {both.count} |"


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
            peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    return (peaks[1] - peaks[0]) / 2**10


def measure_memory() -> Iterator[str]:
    """Peak memory of an evaluation without gradient.

    Yields:
        The lines of the table.
    """
    yield "Resident memory of an evaluation at b points, t = 30, one uncontrollable"
    yield "input; the chunks hold it down for large b C.\n"
    yield "| b | C | peak, MiB |"
    yield "|---|---|---|"
    context = multiprocessing.get_context("spawn")
    for b, samples in ((256, 16), (4096, 16), (65536, 16), (4096, 64)):
        with context.Pool(1) as pool:
            peak = pool.apply(peak_memory, (b, samples))
        yield f"| {b} | {samples} | {peak:.0f} |"


def profile_steps() -> Iterator[str]:
    """Where the time of a step goes.

    Yields:
        The lines of the table.
    """
    parts = {
        "robust optima of the samples": "robust_optimum",
        "expectation propagation": "expectation_propagation",
        "worst cases of candidates": "_worst_cases",
        "moments of truncated pairs": "truncated_bvn_moments",
        "prediction of pairs": "pair_posterior",
        "gradients": "run_backward",
    }
    yield "Shares of a step's time, C = 16, under Python's profiler, which favours few"
    yield "large operations.\n"
    yield f"| domain | t | {' | '.join(parts)} |"
    yield "|---|---|" + "---|" * len(parts)
    for name, t in (("box", 30), ("box", 100), ("thetas", 30)):
        domain = make_domain(name)
        robust_entropy_search(domain, t, 16)
        profiler = cProfile.Profile()
        profiler.runcall(robust_entropy_search, domain, t, 16)
        stats = pstats.Stats(profiler)
        spent: dict[str, float] = {}
        for (_, _, function), (_, _, _, seconds, _) in stats.stats.items():
            for key in parts.values():
                if function == key or f"'{key}'" in function:
                    spent[key] = max(spent.get(key, 0.0), seconds)
        shares = [spent.get(key, 0.0) / stats.total_tt for key in parts.values()]
        yield f"| {name} | {t} | {' | '.join(f'{100 * s:.0f} %' for s in shares)} |"


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
    runs: dict[str, Callable[[], Iterator[str]]] = {
        "steps": lambda: steps(settings, repeats=1 if quick else 3),
        "operations": count_operations,
        "memory": measure_memory,
        "profile": profile_steps,
    }
    unknown = set(arguments.sections) - set(runs)
    if unknown:
        parser.error(f"expected sections among {list(runs)}, got {sorted(unknown)}")
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for section in arguments.sections or runs:
        print(f"## {section}\n", flush=True)
        lines = [describe_run(), ""]
        for line in runs[section]():
            lines.append(line)
            print(line, flush=True)
        if not quick:
            path = RESULTS / "acquisition.md"
            keep_section(path, TITLE, section, "\n".join(lines))
        print(flush=True)


if __name__ == "__main__":
    main()
