"""What holds for every baseline."""

import pytest
import torch
from botorch.exceptions.errors import UnsupportedError

import benchmarks.baselines  # noqa: F401, for their names
from botorch_res import RobustDomain
from botorch_res.models import BayesianGP
from botorch_res.seeding import seeded
from botorch_res.strategies import (
    make_strategy,
    propose_replicates,
    supports_replicates,
)
from tests.strategies.contract import EveryStrategy, InvariantStrategy
from tests.strategies.options import QUICK, registered_by
from tests.strategies.textbook import BOUNDS, BOX, DOMAIN, FLAT, MODEL, NORMAL, data


def test_names():
    assert registered_by("benchmarks") == [
        "expected_improvement",
        "joint_entropy_search",
        "knowledge_gradient",
        "max_value_entropy",
        "upper_confidence_bound",
    ]


@pytest.mark.parametrize("name", registered_by("benchmarks"))
class TestEveryBaseline(EveryStrategy, InvariantStrategy):
    def test_replicates_are_refused(self, name):
        strategy = make_strategy(name, DOMAIN, maximize=False)
        assert not supports_replicates(strategy)
        X, Y = (part.expand(2, -1, -1) for part in data())
        with pytest.raises(UnsupportedError, match=f"got {type(strategy).__name__}"):
            propose_replicates(strategy, X, Y, [0, 1])


def test_ensemble_averages_its_members():
    X, Y = data()
    strategy = make_strategy(
        "expected_improvement",
        DOMAIN,
        maximize=False,
        model_factory=BayesianGP(num_samples=3, num_steps=5),
    )
    model = strategy.fit(X, Y)
    acqf = strategy.acquisition_function(X, Y, None, X[:0], seed=0)
    with torch.no_grad():
        posterior = model.posterior(FLAT.unsqueeze(-2))
    mean, variance = posterior.mean[..., 0, 0], posterior.variance[..., 0, 0]
    u = (Y.min() - mean) / variance.sqrt()
    value = variance.sqrt() * (u * NORMAL.cdf(u) + NORMAL.log_prob(u).exp())
    expected = value.mean(dim=-1) / model.outcome_transform.stdvs.flatten()[0]
    torch.testing.assert_close(acqf(FLAT.unsqueeze(-2)).exp(), expected)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", ["expected_improvement", "joint_entropy_search"])
def test_large_finite_domains_are_searched_in_rounds(name, seed, monkeypatch):
    domain = RobustDomain(
        BOUNDS,
        [0],
        x_choices=BOX.x.sample(400, seed=3),
        theta_choices=BOX.theta.sample(10, seed=4),
    )
    X, Y = data(seed=seed)
    options = {"maximize": True, "model_factory": MODEL, **QUICK.get(name, {})}
    strategy = make_strategy(name, domain, **options)
    monkeypatch.setattr(type(strategy), "max_pairs", 400)
    evaluated = []
    build = strategy.acquisition_function

    def counted(*arguments):
        acqf = build(*arguments)
        acqf.register_forward_hook(lambda _, inputs, __: evaluated.append(inputs[0]))
        return acqf

    monkeypatch.setattr(strategy, "acquisition_function", counted)
    proposed = strategy.propose(X, Y, seed=5)
    points = torch.cat(evaluated).squeeze(-2)
    assert len(points) == 400
    pairs = domain.all_pairs().flatten(0, 1)
    assert (proposed == pairs).all(dim=-1).any()
    with seeded(5), torch.no_grad():
        acqf = build(X, Y, None, X[:0], 5)
        values, best = acqf(pairs.unsqueeze(-2)), acqf(proposed.unsqueeze(-2))
    # Better than a random search of the same size would be, and among the best.
    assert best >= acqf(points.unsqueeze(-2)).max() - 1e-9
    assert (values > best + 1e-9).sum() <= 8
    assert torch.equal(strategy.propose(X, Y, seed=5), proposed)
