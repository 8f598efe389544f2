import pytest
import torch
from botorch.exceptions.errors import InputDataError

from botorch_res.models import ExactGPView
from botorch_res.optim import Regret, predict_regret, recommend_robust_optimum
from botorch_res.sampling import draw_fourier_samples
from tests.brute_force import pairs, values_at
from tests.problems import Draws, line, make_domain, make_kernel, make_model


def make_problem(batch=(), t=8):
    draws = Draws(1)
    X, Y = draws.uniform(*batch, t, 2), draws.normal(*batch, t, 1)
    return make_model(X, Y, 1e-2, make_kernel(None, 0.3, batch=batch))


def brute_force(model, domain, x, maximize, num_samples):
    """The regret of a setting in each of the functions, on a dense grid."""
    view = ExactGPView(model, negate=maximize)
    samples = draw_fourier_samples(view, num_samples, seed=0, domain=domain)
    grid = pairs(domain, 401, 201)
    best = values_at(samples, grid).amax(dim=-1).amin(dim=-1)
    theta = grid[:1, :, 1]
    own = values_at(samples, domain.join(x.expand(1, 1, 1), theta.unsqueeze(-1)))
    return (own.amax(dim=-1).squeeze(-1) - best).clamp_min(0.0).flatten()


def check(draws, expected):
    """The grid misses the best settings, which are often at kinks, by a little."""
    assert (draws >= expected - 2e-3).all()
    assert (draws <= expected + 0.015).all()


@pytest.mark.parametrize("kind", ["box", "theta", "x", "both"])
@pytest.mark.parametrize("maximize", [True, False])
def test_regret_equals_brute_force(kind, maximize):
    domain, model = make_domain(kind), make_problem()
    x = recommend_robust_optimum(model, domain, maximize).x
    regret = predict_regret(model, domain, x, maximize, num_samples=16)
    expected = brute_force(model, domain, x, maximize, 16)
    check(regret.draws, expected)
    assert expected.max() > 0.1


def test_an_ensemble_shares_the_functions():
    domain, model = make_domain(), make_problem(batch=(3,))
    x = domain.x.sample(1, seed=0)[0]
    regret = predict_regret(model, domain, x, maximize=False, num_samples=32)
    assert len(regret.draws) == 33
    expected = brute_force(model, domain, x, False, 11)
    check(regret.draws, expected)


def test_what_the_draws_say():
    regret = Regret(torch.arange(101.0) / 100.0)
    assert regret.mean == pytest.approx(0.5)
    assert regret.quantile(0.9) == pytest.approx(0.9)
    assert regret.probability(0.25) == pytest.approx(26 / 101)
    assert regret.scaled(10.0).mean == pytest.approx(5.0)
    assert str(regret) == "0.5 on average, at most 0.95 with 95 %"


def test_it_shrinks_with_the_uncertainty():
    domain = make_domain()
    X = pairs(domain, 12, 12).flatten(0, 1)
    Y = (5.0 * X[:, :1]).sin() + X[:, :1] * X[:, 1:]
    model = make_model(X, Y, 1e-6, make_kernel(None, 0.4))
    x = recommend_robust_optimum(model, domain, maximize=False).x
    assert predict_regret(model, domain, x, maximize=False).quantile(0.95) < 1e-3


def test_bad_input():
    domain, model = make_domain(), make_problem()
    x = line(1)[0]
    with pytest.raises(InputDataError, match=r"of shape \(1,\), got \[0\.5, 0\.25\]"):
        predict_regret(model, domain, torch.tensor([0.5, 0.25]))
    with pytest.raises(InputDataError, match=r"a setting .* got \[2\.0\]"):
        predict_regret(model, domain, x + 2.0)
    with pytest.raises(InputDataError, match="`num_samples` to be a whole number"):
        predict_regret(model, domain, x, num_samples=0)
    regret = Regret(torch.ones(3))
    with pytest.raises(InputDataError, match=r"`level` to be a number .* got 1\.5"):
        regret.quantile(1.5)
    with pytest.raises(InputDataError, match="`limit` to be a finite number"):
        regret.probability(-1.0)
