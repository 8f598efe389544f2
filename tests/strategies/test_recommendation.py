import pytest
import torch
from botorch.exceptions.warnings import BotorchWarning
from botorch.models.deterministic import GenericDeterministicModel

from botorch_res import RobustDomain
from botorch_res.models import BayesianGP, DefaultGP, FixedGP
from botorch_res.optim import mean_function
from botorch_res.strategies import recommendation
from botorch_res.strategies.recommendation import recommend, worst_case_band
from tests.brute_force import mean_at, pairs, robust_value
from tests.problems import Draws, line, make_model, unit_domain

BOUNDS = torch.tensor([[-5.0, 0.0], [10.0, 15.0]], dtype=torch.double)
X_CHOICES = line(31, -5.0, 10.0)
THETA_CHOICES, MANY_THETAS = line(21, 0.0, 15.0), line(301, 0.0, 15.0)
DOMAINS = [
    RobustDomain(BOUNDS, [1]),
    RobustDomain(BOUNDS, [1], theta_choices=THETA_CHOICES),
    RobustDomain(BOUNDS, [1], x_choices=X_CHOICES),
    RobustDomain(BOUNDS, [1], x_choices=X_CHOICES, theta_choices=MANY_THETAS),
]


def fitted(domain, factory, n=12):
    X = domain.sample(n, seed=1)
    Y = ((X[:, :1] / 3).sin() + (X[:, 1:] / 5).cos() * X[:, :1] / 10) * 30
    return factory(X, Y, None, BOUNDS)


@pytest.mark.parametrize(
    "factory", [DefaultGP(), BayesianGP(num_samples=3, num_steps=10)]
)
@pytest.mark.parametrize("maximize", [True, False])
@pytest.mark.parametrize("domain", DOMAINS)
def test_recommendation_equals_brute_force(domain, maximize, factory):
    model = fitted(domain, factory)
    found = recommend(model, domain, maximize)
    sign = -1.0 if maximize else 1.0
    table = sign * mean_at(model, pairs(domain, 301, 301))
    z = domain.join(found.x, found.theta).unsqueeze(0)
    posterior = model.posterior(z)
    at_point = sign * getattr(posterior, "mixture_mean", posterior.mean)
    variance = getattr(posterior, "mixture_variance", posterior.variance)
    assert found.standard_deviation == pytest.approx(float(variance.sqrt()), rel=1e-4)
    # Theta is the worst one by the mean, and x is nearly the best one.
    theta = pairs(domain, 301, 301)[0, :, 1:]
    at_x = sign * mean_at(model, domain.join(found.x, theta).unsqueeze(0))
    assert at_x.max() - 1e-6 <= at_point <= at_x.max() + 0.02
    # The grid of x is coarse: it may be beaten by a little.
    assert robust_value(table) - 1e-2 <= at_point <= robust_value(table) + 0.5
    assert found.lower <= found.value <= found.upper


@pytest.mark.parametrize("maximize", [True, False])
def test_band_equals_monte_carlo(maximize, monkeypatch):
    monkeypatch.setattr(recommendation, "_NUM_FUNCTIONS", 20_000)
    domain = DOMAINS[1]
    model = fitted(domain, FixedGP(0.3, standardize=True), n=8)
    x = torch.tensor([[-4.0], [0.0], [9.0]], dtype=torch.double)
    band = worst_case_band(model, domain, x, maximize)
    points = domain.join(x.unsqueeze(-2), THETA_CHOICES)
    posterior = model.posterior(points)
    mean = posterior.mean.squeeze(-1)
    index = mean.argmin(-1) if maximize else mean.argmax(-1)
    torch.testing.assert_close(band.theta, THETA_CHOICES[index])

    covariance = posterior.distribution.covariance_matrix
    root = torch.linalg.cholesky(
        covariance + 1e-8 * covariance.diagonal(dim1=-2, dim2=-1).max() * torch.eye(21)
    )
    drawn = mean + torch.einsum("nij,snj->sni", root, Draws(5).normal(20_000, 3, 21))
    extreme = drawn.amin(-1) if maximize else drawn.amax(-1)
    # Two samples of 20,000: the fraction below an estimated 2.5 % quantile has a
    # standard error of sqrt(2 * 0.025 * 0.975 / 20000) = 0.0016, whatever the shape.
    # That of the median is sqrt(2 * 0.25 / 20000) = 0.005.
    for found, level, error in (
        (band.lower, 0.025, 0.0016),
        (band.value, 0.5, 0.005),
        (band.upper, 0.975, 0.0016),
    ):
        fraction = (extreme < found).double().mean(0)
        assert (fraction - level).abs().max() < 4 * error


def test_band_of_an_ensemble_covers_its_members():
    domain = DOMAINS[0]
    model = fitted(domain, BayesianGP(num_samples=4, num_steps=20), n=3)
    x = torch.tensor([[2.0]], dtype=torch.double)
    band = worst_case_band(model, domain, x, maximize=False)
    z = domain.join(x, band.theta)
    members = model.posterior(z).mean.reshape(-1)
    assert band.lower < members.min() < members.max() < band.upper
    assert members.mean() < band.value < band.upper


class TestMeanFunction:
    @pytest.mark.parametrize("negate", [True, False])
    @pytest.mark.parametrize(
        "factory", [DefaultGP(), BayesianGP(num_samples=3, num_steps=5)]
    )
    def test_equals_the_posterior(self, factory, negate):
        domain = DOMAINS[0]
        model = fitted(domain, factory)
        z = domain.sample(7, seed=3)
        found = mean_function(model, negate)(z)
        posterior = model.posterior(z)
        mean = getattr(posterior, "mixture_mean", posterior.mean).squeeze(-1)
        sign = -1 if negate else 1
        torch.testing.assert_close(found.reshape(-1), sign * mean)

    def test_models_of_other_kinds(self):
        model = GenericDeterministicModel(lambda z: z.sum(-1, keepdim=True))
        z = DOMAINS[0].sample(5, seed=0)
        assert torch.equal(mean_function(model, negate=True)(z), -z.sum(-1))
        state = torch.random.get_rng_state()
        with pytest.warns(BotorchWarning, match="got GenericDeterministicModel"):
            found = recommend(model, DOMAINS[0], maximize=False)
        assert torch.equal(state, torch.random.get_rng_state())
        # min over x of max over theta of x + theta.
        assert found.x.tolist() == [-5.0]
        assert found.theta.tolist() == [15.0]
        assert found.value == found.lower == found.upper == 10.0


def test_a_model_of_the_user():
    X = DOMAINS[0].sample(5, seed=0)
    model = make_model((X - BOUNDS[0]) / 15, X.sum(-1, keepdim=True))
    assert recommend(model, unit_domain(), maximize=False).standard_deviation > 0
