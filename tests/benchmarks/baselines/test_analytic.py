"""Proposals of expected improvement and the confidence bound by their formulas."""

import pytest
import torch
from botorch.exceptions.errors import InputDataError

import benchmarks.baselines  # noqa: F401, for their names
from botorch_res.strategies import make_strategy
from tests.strategies.textbook import (
    CASES,
    DOMAIN,
    FLAT,
    NORMAL,
    Posterior,
    data,
    propose,
)


@CASES
def test_expected_improvement(seed, maximize):
    X, Y = data(seed=seed)
    posterior = Posterior(X, Y, negate=not maximize)
    mean, deviation = posterior.mean(FLAT), posterior.deviation(FLAT)
    u = (mean - posterior.y.max()) / deviation
    value = deviation * (u * NORMAL.cdf(u) + NORMAL.log_prob(u).exp())
    proposed = propose("expected_improvement", X, Y, maximize)
    assert torch.equal(proposed, FLAT[value.argmax()])


@CASES
def test_upper_confidence_bound(seed, maximize):
    X, Y = data(seed=seed)
    posterior = Posterior(X, Y, negate=not maximize)
    value = posterior.mean(FLAT) + 2.0 * posterior.deviation(FLAT)
    proposed = propose("upper_confidence_bound", X, Y, maximize)
    assert torch.equal(proposed, FLAT[value.argmax()])


def test_bad_sqrt_beta():
    for bad in (-1.0, float("nan"), float("inf"), "2"):
        with pytest.raises(InputDataError, match=f"`sqrt_beta` .* got {bad!r}"):
            make_strategy(
                "upper_confidence_bound", DOMAIN, maximize=False, sqrt_beta=bad
            )
