"""Worst cases and robust optima of domains with listed and free columns.

Five hundred functions for each kind of domain, against brute force in every row.
"""

import pytest
import torch

from botorch_res.optim import robust_optimum, worst_case
from tests.brute_force import maximum_over_theta, minimum_over_x
from tests.mixed_problems import ALL_KINDS, LISTED_THETA, LISTED_X, mixed_samples

# The rough ones are fewer, because their brute force is slow.
FUNCTIONS = {
    "product": 170,
    "sum and product": 110,
    "additive": 140,
    "rough product": 60,
    "two smoothnesses": 20,
}
DOMAINS = {
    "listed x": LISTED_X,
    "listed theta": LISTED_THETA,
    "all kinds": ALL_KINDS,
}


@pytest.mark.parametrize("name", DOMAINS)
def test_accuracy_against_brute_force(name):
    domain = DOMAINS[name]
    hits, errors = [], []
    for seed, (kind, count) in enumerate(FUNCTIONS.items()):
        samples = mixed_samples(domain, kind, seed, count)
        x = domain.x.sample(1, seed=seed).expand(count, -1, -1)
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
        hits.append(worst.value[:, 0] >= best[:, 0] - 1e-7)
        errors.append((optimum.value - best[:, 1:].amin(-1)).abs())
    # As many as in domains without listed columns.
    assert torch.cat(hits).double().mean() >= 0.999
    assert (torch.cat(errors) > 1e-3).sum() <= 5
