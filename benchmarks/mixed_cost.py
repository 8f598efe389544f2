"""What listed rows cost: one step with n rows against n box problems in one batch.

    OMP_NUM_THREADS=1 python -m benchmarks.mixed_cost [--quick]

Both steps take turns in one process, in CPU time on one thread. Rows that are in
``results/mixed_cost.md`` are not measured again.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

import torch
from botorch.models import SingleTaskGP
from botorch.models.kernels import CategoricalKernel
from gpytorch.kernels import Kernel, RBFKernel
from torch import Tensor

from benchmarks.report import RESULTS, Table, alternate, run_sections
from benchmarks.workload import count
from botorch_res import RobustDomain
from botorch_res.acquisition import qRobustEntropySearch
from botorch_res.optim import optimize_replicates, optimize_robust_acqf

DOUBLE = {"dtype": torch.double}
TITLE = """# What listed rows cost

    OMP_NUM_THREADS=1 python -m benchmarks.mixed_cost

A step constructs the acquisition function and finds one candidate (8 restarts, up to
eight times as many at first if x is mixed, 256 raw samples). It has n rows of one
listed column, and one free column each of x and theta. It is compared with the same
step of n problems of these two free columns alone, as a batch of n models. Each model
has t = 20 observations, and C = 16 samples.
"""
NUM_DATA = 20
NUM_SAMPLES = 16
NUM_POINTS = 64


def make_domain(listed: str, n: int) -> RobustDomain:
    """A listed column, one free column of x and one of theta.

    Args:
        listed: The part with the listed column, ``x`` or ``theta``.
        n: The number of listed values; 0 for the two free columns alone.

    Returns:
        The domain. The listed column is the first one.
    """
    bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], **DOUBLE)
    if n == 0:
        return RobustDomain(bounds, [1])
    top = torch.tensor([[0.0], [float(max(1, n - 1))]], **DOUBLE)
    choices = {f"{listed}_choices": {0: [float(i) for i in range(n)]}}
    return RobustDomain(
        torch.cat([top, bounds], dim=-1),
        [2] if listed == "x" else [2, 0],
        cat_dims=[0],
        **choices,
    )


def make_kernel(kernel: str, shape: tuple[int, ...] = ()) -> Kernel:
    """The kernel of two free columns, behind a listed one unless it is a batch.

    Args:
        kernel: ``categorical`` or ``number``, what the listed column is for the model.
        shape: The shape of a batch of models without a listed column.

    Returns:
        The kernel.
    """
    if kernel == "number" and not shape:
        own = RBFKernel(ard_num_dims=3).double()
        own.lengthscale = torch.tensor([1.0, 0.3, 0.3], **DOUBLE)
        return own
    columns = None if shape else [1, 2]
    own = RBFKernel(
        ard_num_dims=2, active_dims=columns, batch_shape=torch.Size(shape)
    ).double()
    own.lengthscale = 0.3
    return own if shape else own * CategoricalKernel(active_dims=[0]).double()


def make_model(X: Tensor, kernel: Kernel) -> SingleTaskGP:
    """A model of a smooth function, with fixed hyperparameters.

    Args:
        X: ``... x t x d`` points.
        kernel: The kernel.

    Returns:
        The model.
    """
    Y = (5.0 * X).sin().sum(-1, keepdim=True) + (7.0 * X[..., -2:].prod(-1)).cos()[
        ..., None
    ]
    Y = (Y - Y.mean(-2, keepdim=True)) / Y.std(-2, keepdim=True)
    noise = torch.full_like(Y, 1e-3)
    return SingleTaskGP(X, Y, noise, covar_module=kernel, outcome_transform=None).eval()


def mixed(listed: str, kernel: str, n: int) -> Callable[[], qRobustEntropySearch]:
    """Prepare the construction of an acquisition function with listed rows.

    Args:
        listed: The part with the listed column.
        kernel: See ``make_kernel``.
        n: The number of rows.

    Returns:
        What makes the acquisition function.
    """
    domain = make_domain(listed, n)
    model = make_model(domain.sample(NUM_DATA, seed=0), make_kernel(kernel))
    return partial(
        qRobustEntropySearch, model, domain, NUM_SAMPLES, maximize=False, seed=0
    )


def boxes(n: int) -> Callable[[], qRobustEntropySearch]:
    """Prepare the construction of an acquisition function of a batch of models.

    Args:
        n: The number of models.

    Returns:
        What makes the acquisition function.
    """
    domain = make_domain("x", 0)
    X = torch.stack([domain.sample(NUM_DATA, seed=seed) for seed in range(n)])
    model = make_model(X, make_kernel("number", (n,)))
    return partial(
        qRobustEntropySearch, model, domain, NUM_SAMPLES, maximize=False, seed=range(n)
    )


def search(make: Callable[[], qRobustEntropySearch]) -> None:
    """One step.

    Args:
        make: Makes the acquisition function, of one model or of a batch.
    """
    acqf = make()
    members = acqf.view.batch_shape.numel()
    if len(acqf.view.batch_shape) > 0:
        optimize_replicates(acqf, acqf.domain, range(members))
    else:
        optimize_robust_acqf(acqf, acqf.domain, seed=0)


def evaluate(acqf: qRobustEntropySearch) -> object:
    """Evaluate an acquisition function at some points of each model, with its gradient.

    Args:
        acqf: The acquisition function.

    Returns:
        The gradient.
    """
    shape = acqf.view.batch_shape
    points = acqf.domain.sample(NUM_POINTS, seed=1)
    points = points.view(NUM_POINTS, *[1] * len(shape), 1, -1)
    leaf = points.expand(NUM_POINTS, *shape, 1, -1).clone().requires_grad_()
    return torch.autograd.grad(acqf(leaf).sum(), leaf)


def measure(listed: str, kernel: str, n: int, repeats: int) -> list[str]:
    """A row of the table of times.

    Args:
        listed: The part with the listed column.
        kernel: See ``make_kernel``.
        n: The number of rows.
        repeats: How often each is timed.

    Returns:
        The seconds of the steps, and the ratios of construction, evaluation and step.
    """
    own, other = mixed(listed, kernel, n), boxes(n)
    ours, theirs = own(), other()
    step = alternate(partial(search, own), partial(search, other), repeats=repeats)
    halves = [
        alternate(own, other, repeats=repeats),
        alternate(partial(evaluate, ours), partial(evaluate, theirs), repeats=repeats),
    ]
    ratios = [f"{a / b:.2f}" for a, b in (*halves, step)]
    return [f"{step[0]:.2f}", f"{step[1]:.2f}", *ratios]


def count_operations(listed: str, kernel: str, n: int) -> list[int]:
    """The operations that construction and evaluation dispatch.

    Args:
        listed: The part with the listed column.
        kernel: See ``make_kernel``.
        n: The number of rows.

    Returns:
        Those of the construction, and of an evaluation with its gradient.
    """
    make = mixed(listed, kernel, n)
    acqf = make()
    evaluate(acqf)  # makes constants that are kept
    return [count(make), count(partial(evaluate, acqf))]


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sections", nargs="*", metavar="section")
    parser.add_argument("--quick", action="store_true", help="few settings, no file")
    arguments = parser.parse_args()
    quick = arguments.quick
    keys = [
        (listed, kernel, n)
        for listed in ("x", "theta")
        for kernel in ("categorical", "number")
        for n in ((1, 5) if quick else (1, 5, 20, 50))
    ]
    heads = ["mixed, s", "boxes, s", "construct", "evaluate", "step"]
    names = ["listed", "kernel", "n"]
    run_sections(
        {
            "times": lambda: Table(
                "Medians of CPU time of a step, and ratios to the n box problems: of "
                f"the construction, of an evaluation at {NUM_POINTS} points of each "
                "model with its gradient, and of the step.",
                names,
                heads,
                {key: partial(measure, *key, 1 if quick else 3) for key in keys},
            ),
            "operations": lambda: Table(
                "Operations dispatched by the construction, and by an evaluation at "
                f"{NUM_POINTS} points with its gradient.",
                names,
                ["construct", "evaluate"],
                {key: partial(count_operations, *key) for key in keys},
            ),
        },
        arguments.sections,
        None if quick else RESULTS / "mixed_cost.md",
        TITLE,
    )


if __name__ == "__main__":
    main()
