"""A finite problem, and the posterior of its model by the textbook."""

import pytest
import torch
from torch.distributions import Normal

from botorch_res import RobustDomain
from botorch_res.models import FixedGP
from botorch_res.strategies import make_strategy
from tests.problems import DOUBLE, Draws
from tests.strategies.options import QUICK

# The uncontrollable column comes first, so that no order of columns is taken for
# granted.
BOUNDS = torch.tensor([[100.0, -5.0, 0.0], [300.0, 10.0, 1.0]], **DOUBLE)
BOX = RobustDomain(BOUNDS, [0])
DOMAIN = RobustDomain(
    BOUNDS,
    [0],
    x_choices=BOX.x.sample(12, seed=3),
    theta_choices=BOX.theta.sample(5, seed=4),
)
PAIRS = DOMAIN.all_pairs()
FLAT = PAIRS.flatten(0, 1)
MODEL = FixedGP((0.5, 0.3, 0.4), noise_variance=1e-3, standardize=True)
NORMAL = Normal(torch.zeros((), **DOUBLE), torch.ones((), **DOUBLE))


def data(t=6, seed=0):
    X = BOX.sample(t, seed=seed)
    return X, 50.0 + 7.0 * Draws(seed).normal(t, 1)


def kernel(a, b):
    width = (BOUNDS[1] - BOUNDS[0]) * torch.tensor([0.5, 0.3, 0.4], **DOUBLE)
    return torch.exp(
        -((a.unsqueeze(-2) - b.unsqueeze(-3)) / width).square().sum(-1) / 2
    )


class Posterior:
    """The posterior of standardised values by the textbook, negated if asked."""

    def __init__(self, X, Y, negate):
        self.y = ((Y - Y.mean()) / Y.std(correction=0)).squeeze(-1)
        self.y = -self.y if negate else self.y
        self.X = X
        self.noise = 1e-3
        self.inverse = (kernel(X, X) + self.noise * torch.eye(len(X))).inverse()

    def mean(self, z):
        return kernel(z, self.X) @ self.inverse @ self.y

    def covariance(self, a, b):
        return kernel(a, b) - kernel(a, self.X) @ self.inverse @ kernel(self.X, b)

    def deviation(self, z):
        return self.covariance(z, z).diagonal().clamp_min(0.0).sqrt()


def propose(name, X, Y, maximize, **options):
    options = {**QUICK.get(name, {}), **options}
    strategy = make_strategy(
        name, DOMAIN, maximize=maximize, model_factory=MODEL, **options
    )
    return strategy.propose(X, Y, seed=5)[0]


CASES = pytest.mark.parametrize(
    ("seed", "maximize"), [(0, True), (1, False), (2, True), (3, False)]
)


def unit_cube(z):
    return (z - BOUNDS[0]) / (BOUNDS[1] - BOUNDS[0])


def sampled_values(posterior, points, num, seed):
    normal = Draws(seed).normal(len(points), num)
    covariance = posterior.covariance(points, points)
    values, vectors = torch.linalg.eigh(covariance)
    root = vectors * values.clamp_min(0.0).sqrt()
    return posterior.mean(points).unsqueeze(-1) + root @ normal
