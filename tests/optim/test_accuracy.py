"""Worst cases and robust optima of five hundred functions of each kind of domain.

Few features make the brute force fast. See ``test_worst_case`` and
``test_robust_optimum`` for functions of as many features as usual.
"""

import pytest
import torch

from botorch_res.optim import robust_optimum, worst_case
from tests.brute_force import maximum_over_theta, minimum_over_x
from tests.mixed_problems import ALL_KINDS, LISTED_THETA, LISTED_X, mixed_samples
from tests.problems import random_samples, sloppy_domain

# The rough ones are fewer, because their brute force is slow.
FUNCTIONS = {
    "product": 170,
    "sum and product": 110,
    "additive": 140,
    "rough product": 60,
    "two smoothnesses": 20,
}


def compare(samples, domain, seed):
    """How much worst cases fall short of brute force, and how far optima are off."""
    x = domain.x.sample(1, seed=seed).expand(samples.num_samples, -1, -1)
    worst = worst_case(samples, x, domain)
    optimum = robust_optimum(samples, domain)
    assert domain.x.contains(optimum.x).all()
    rival = minimum_over_x(samples, domain, 6.0, 200, 4, rounds=10, zooms=0)
    x = torch.cat([x, optimum.x.unsqueeze(-2), rival], dim=-2)
    best = maximum_over_theta(samples, x, domain, limit=2000, top=6)
    # Never above the maximum: it is a value of the function in the domain.
    for theta, value, own in (
        (worst.theta, worst.value, x[:, :1]),
        (optimum.theta.unsqueeze(-2), optimum.value.unsqueeze(-1), x[:, 1:2]),
    ):
        assert domain.theta.contains(theta).all()
        at_found = samples(domain.join(own, theta))
        torch.testing.assert_close(value, at_found, rtol=1e-8, atol=1e-8)
    error = (optimum.value - best[:, 1:].amin(-1)).abs()
    return torch.stack([best[:, 0] - worst.value[:, 0], error])


def check(found, share):
    """The rates that ``test_worst_case`` and ``test_robust_optimum`` ask."""
    shortfall, error = torch.cat(found, dim=-1)
    assert (shortfall <= 1e-7).double().mean() >= share
    assert (error > 1e-3).double().mean() <= 0.01


@pytest.mark.parametrize(
    "domain",
    [
        pytest.param(LISTED_X, id="listed x"),
        pytest.param(LISTED_THETA, id="listed theta"),
        pytest.param(ALL_KINDS, id="all kinds"),
    ],
)
def test_mixed_domains(domain):
    """In every row the theta of a mixed domain is one column."""
    found = [
        compare(mixed_samples(domain, kernel, seed, count), domain, seed)
        for seed, (kernel, count) in enumerate(FUNCTIONS.items())
    ]
    check(found, 0.999)


@pytest.mark.parametrize(
    ("dims", "count", "share"),
    [
        ((1, 0, 1), 100, 0.999),
        ((1, 1, 1), 100, 0.99),
        ((2, 0, 2), 100, 0.99),
        # The same holds for 100 functions of each model, which take minutes.
        ((3, 0, 3), 8, 0.97),
    ],
)
def test_tolerances(dims, count, share):
    domain = sloppy_domain(*dims)
    found = []
    for seed in range(5):
        samples, _ = random_samples(domain.dim, seed, None, count, num_features=64)
        found.append(compare(samples, domain, seed))
    check(found, share)
