"""Random posteriors with mixed kernels, and domains with listed columns."""

from __future__ import annotations

import operator
from functools import reduce

import torch
from botorch.models import SingleTaskGP
from botorch.models.kernels import CategoricalKernel
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from torch import Tensor

from botorch_res import RobustDomain
from botorch_res.sampling import BatchFunction, draw_fourier_samples
from tests.problems import DOUBLE, Draws, make_model

NAMES = [0.0, 1.0, 2.0]
MIXED_KERNELS = (
    "product",
    "sum and product",
    "additive",
    "rough product",
    "two smoothnesses",
)


def unit_bounds(dim: int, categories: tuple[int, ...]) -> Tensor:
    """The unit cube, with codes from 0 to 2 in the columns of categories."""
    bounds = torch.tensor([[0.0], [1.0]], **DOUBLE).repeat(1, dim)
    bounds[1, list(categories)] = 2.0
    return bounds


def rows_of(*rows: tuple[float, ...]) -> Tensor:
    return torch.tensor(rows, **DOUBLE)


# A category and a number in rows, and a theta in a box.
LISTED_X = RobustDomain(
    unit_bounds(3, (0,)),
    [2],
    {(0, 1): rows_of((0, 0.1), (0, 0.9), (1, 0.5), (1, 0.2), (2, 0.7), (2, 0.3))},
    cat_dims=[0],
)
# One x in a box, a theta in a box and a listed one.
LISTED_THETA = RobustDomain(
    unit_bounds(3, (1,)), [1, 2], theta_choices={1: NAMES}, cat_dims=[1]
)
# All four kinds of column, in any order.
ALL_KINDS = RobustDomain(
    unit_bounds(5, (1, 2)),
    [4, 2, 3],
    {1: NAMES},
    {(2, 3): rows_of((0, 0.1), (0, 0.9), (1, 0.5), (2, 0.7))},
    cat_dims=[1, 2],
)


class KernelMaker:
    """Random kernels of each kind for the columns of a domain."""

    def __init__(
        self, domain: RobustDomain, draws: Draws, shortest: float = 0.05
    ) -> None:
        self.draws, self.shortest = draws, shortest
        self.categories = list(domain.cat_dims)
        self.numbers = [i for i in range(domain.dim) if i not in self.categories]

    def smooth(self, *columns: int) -> Kernel:
        own = list(columns) or self.numbers
        kernel = RBFKernel(ard_num_dims=len(own), active_dims=own).double()
        kernel.lengthscale = self.shortest ** self.draws.uniform(len(own))
        return kernel

    def rough(self, nu: float) -> Kernel:
        kernel = MaternKernel(nu, active_dims=self.numbers).double()
        kernel.lengthscale = 0.4 * 2.5 ** self.draws.uniform(1)
        return kernel

    def named(self) -> Kernel:
        kernel = CategoricalKernel(
            ard_num_dims=len(self.categories), active_dims=self.categories
        ).double()
        kernel.lengthscale = 0.1 * 20 ** self.draws.uniform(len(self.categories))
        return kernel

    def make(self, kind: str) -> Kernel:
        if kind == "product":
            return self.smooth() * self.named()
        if kind == "rough product":
            return self.rough(2.5) * self.named()
        if kind == "sum and product":  # as in MixedSingleTaskGP
            alone = scaled(self.smooth() + scaled(self.named(), 0.5), 0.4)
            return alone + scaled(self.smooth() * self.named(), 0.6)
        if kind == "additive":
            terms = [scaled(self.smooth(i), 0.4) for i in self.numbers]
            return reduce(operator.add, terms) + scaled(
                self.smooth() * self.named(), 0.5
            )
        # Two smoothnesses, and nested scales.
        return scaled(scaled(self.smooth(), 0.8) + self.rough(1.5), 0.5) * self.named()


def scaled(kernel: Kernel, outputscale: float) -> Kernel:
    kernel = ScaleKernel(kernel).double()
    kernel.outputscale = outputscale
    return kernel


def mixed_model(
    domain: RobustDomain,
    kind: str,
    seed: int,
    t: int | None = None,
    noise: float = 1e-4,
    shortest: float = 0.05,
) -> SingleTaskGP:
    """A model whose data are a draw from its prior; by default 1 to 40 of them."""
    draws = Draws(seed)
    kernel = KernelMaker(domain, draws, shortest).make(kind)
    t = round(40 ** float(draws.uniform(1))) if t is None else t
    X = domain.sample(t, seed=seed)
    covariance = kernel(X).to_dense().detach() + noise * torch.eye(t, **DOUBLE)
    Y = torch.linalg.cholesky(covariance) @ draws.normal(t, 1)
    return make_model(X, Y, noise, kernel)


def mixed_samples(
    domain: RobustDomain, kind: str, seed: int, num_samples: int
) -> BatchFunction:
    """Samples of a random posterior, of few features to make brute force fast."""
    return draw_fourier_samples(
        mixed_model(domain, kind, seed), num_samples, 64, seed=seed, domain=domain
    )
