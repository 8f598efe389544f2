"""The halves of a step of Robust Entropy Search, of any size."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from botorch.models import SingleTaskGP
from gpytorch.kernels import RBFKernel

from benchmarks.report import alternate
from botorch_res import RobustDomain
from botorch_res.acquisition import qRobustEntropySearch
from tests.operation_count import OperationCount


class Size(NamedTuple):
    """The size of an acquisition function and of an evaluation.

    Attributes:
        t: The number of observations.
        C: The number of function samples.
        b: The number of points.
        d: The number of inputs, half of them uncontrollable.
    """

    t: int = 20
    C: int = 16
    b: int = 256
    d: int = 2


BASE = Size()
GROWTH = {
    "t": (10, 20, 50, 100),
    "C": (1, 4, 16, 64),
    "b": (16, 64, 256, 1024),
    "d": (2, 4, 6),
}


def make_problem(
    size: Size, dtype: torch.dtype = torch.double, device: str = "cpu"
) -> tuple[SingleTaskGP, RobustDomain]:
    """A model of a smooth function in the unit cube.

    Args:
        size: The size.
        dtype: The dtype.
        device: The device.

    Returns:
        The model and the domain.
    """
    kind = {"dtype": dtype, "device": device}
    bounds = torch.tensor([[0.0], [1.0]], **kind).expand(2, size.d)
    domain = RobustDomain(bounds, list(range(size.d // 2, size.d)))
    X = domain.sample(size.t, seed=0)
    Y = (5.0 * X).sin().sum(-1, keepdim=True)
    Y = (Y - Y.mean()) / Y.std()
    covariance = RBFKernel(ard_num_dims=size.d).to(**kind)
    covariance.lengthscale = 0.15 * size.d
    model = SingleTaskGP(
        X,
        Y,
        torch.full_like(Y, 1e-3),
        covar_module=covariance,
        outcome_transform=None,
    )
    return model.eval(), domain


class Work(NamedTuple):
    """The two halves of a step.

    Attributes:
        construct: Makes the acquisition function.
        evaluate: Evaluates it, with its gradient.
    """

    construct: Callable[[], object]
    evaluate: Callable[[], object]


def make_work(
    size: Size, dtype: torch.dtype = torch.double, device: str = "cpu"
) -> Work:
    """Prepare the halves of a step.

    Args:
        size: The size.
        dtype: The dtype.
        device: The device.

    Returns:
        The work.
    """
    model, domain = make_problem(size, dtype, device)

    def construct() -> qRobustEntropySearch:
        return qRobustEntropySearch(
            model, domain, num_samples=size.C, maximize=False, seed=0
        )

    acqf = construct()
    points = domain.sample(size.b, seed=1).unsqueeze(-2)

    def evaluate() -> object:
        leaf = points.detach().requires_grad_()
        return torch.autograd.grad(acqf(leaf).sum(), leaf)

    return Work(construct, evaluate)


def count(function: Callable[[], object]) -> int:
    """The operations that a function dispatches.

    Args:
        function: The function.

    Returns:
        Their number.
    """
    with OperationCount() as counter:
        function()
    return counter.count


def compare_halves(work: Work, base: Work, repeats: int) -> list[tuple[float, float]]:
    """Times of the halves of a step, relative to those of another one.

    Args:
        work: The step.
        base: The other one.
        repeats: How often each is timed.

    Returns:
        For each half the median CPU seconds and their ratio to the other step's.
    """
    times = [
        alternate(own, other, repeats=repeats)
        for own, other in zip(work, base, strict=True)
    ]
    return [(own, own / other) for own, other in times]
