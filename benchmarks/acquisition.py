"""What one step of Robust Entropy Search costs, against the alternatives in BoTorch.

Run as ``python -m benchmarks.acquisition [--quick]``. A step constructs the acquisition
function and finds one candidate with 8 restarts and 256 raw samples. Times are medians
of CPU time on one core, in runs that alternate between the methods.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable

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

from botorch_res import RobustDomain
from botorch_res.acquisition import qRobustEntropySearch
from botorch_res.acquisition.stable_opt import StableOpt
from botorch_res.optim.optimize_acqf import optimize_robust_acqf
from tests.operation_count import OperationCount

DOUBLE = {"dtype": torch.double}
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


def alternate(functions: list[Callable[[], None]], repeats: int) -> list[float]:
    """Median CPU seconds of functions that take turns.

    Args:
        functions: The functions.
        repeats: How often each is timed, after one run that is not.

    Returns:
        The medians.
    """
    times: list[list[float]] = [[] for _ in functions]
    for repeat in range(repeats + 1):
        for function, record in zip(functions, times, strict=True):
            start = time.process_time()
            function()
            if repeat:
                record.append(time.process_time() - start)
    return [statistics.median(record) for record in times]


def steps(settings: list[tuple[str, int, int]], repeats: int) -> None:
    """Print the table of steps.

    Args:
        settings: Names of domains, numbers of observations and of samples.
        repeats: How often each step is timed.
    """
    print("| domain | t | C | RES, s | RES / JES | RES / worst-case qLogNEI | RES / ")
    print("StableOpt |\n|---|---|---|---|---|---|---|")
    for name, t, samples in settings:
        domain = make_domain(name)
        methods = [robust_entropy_search, stable_opt]
        if name != "grid":
            methods += [joint_entropy_search, worst_case_improvement]
        runs = [
            lambda method=method, domain=domain, t=t, samples=samples: method(
                domain, t, samples
            )
            for method in methods
        ]
        own, stable, *others = alternate(runs, repeats)
        ratios = [f"{own / other:.2f}" for other in others] or ["-", "-"]
        row = [name, str(t), str(samples), f"{own:.2f}", *ratios, f"{own / stable:.2f}"]
        print(f"| {' | '.join(row)} |", flush=True)


def count_operations() -> None:
    """Print the operations dispatched by an evaluation and its gradient."""
    print("| domain | b | C | forward | forward and backward |\n|---|---|---|---|---|")
    for name in ("box", "thetas"):
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
            print(f"| {name} | {b} | {samples} | {forward.count} | {both.count} |")


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few settings, one repeat")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if quick:
        settings = [("box", 10, 16), ("box", 30, 16), ("box", 100, 16)]
        settings += [("thetas", 30, 16)]
    else:
        settings = [
            (name, t, samples)
            for name in ("box", "thetas", "4-D", "grid")
            for t in (10, 30, 100)
            for samples in (1, 16, 64)
        ]
    count_operations()
    steps(settings, repeats=1 if quick else 3)


if __name__ == "__main__":
    main()
