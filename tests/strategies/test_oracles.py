"""Each strategy's proposal on a finite domain, computed in another way."""

import math

import pytest
import torch
from botorch.exceptions.errors import UnsupportedError
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.utils.sampling import manual_seed
from gpytorch.means import LinearMean
from torch.distributions import Normal

from botorch_res import RobustDomain
from botorch_res.models import BayesianGP, ExactGPView, FixedGP
from botorch_res.strategies import make_strategy
from botorch_res.strategies.non_robust import members
from tests.strategies.options import QUICK

pytestmark = pytest.mark.filterwarnings(
    "ignore:A not p.d.:linear_operator.utils.warnings.NumericalWarning"
)

DOUBLE = {"dtype": torch.double}
# The uncontrollable column comes first, so that no order of columns is taken for
# granted.
BOUNDS = torch.tensor([[100.0, -5.0, 0.0], [300.0, 10.0, 1.0]], **DOUBLE)
BOX = RobustDomain(BOUNDS, [0])
DOMAIN = RobustDomain(
    BOUNDS,
    [0],
    x_choices=BOX.sample_x(12, seed=3),
    theta_choices=BOX.sample_theta(5, seed=4),
)
PAIRS = DOMAIN.all_pairs()
FLAT = PAIRS.flatten(0, 1)
MODEL = FixedGP((0.5, 0.3, 0.4), noise_variance=1e-3, standardize=True)
NORMAL = Normal(torch.zeros((), **DOUBLE), torch.ones((), **DOUBLE))


def data(t=6, seed=0):
    X = BOX.sample(t, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    return X, 50.0 + 7.0 * torch.randn(t, 1, generator=generator, **DOUBLE)


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


@CASES
@pytest.mark.parametrize("sqrt_beta", [1.0, 2.0, 4.0])
def test_stable_opt(seed, maximize, sqrt_beta):
    X, Y = data(seed=seed)
    posterior = Posterior(X, Y, negate=maximize)
    mean = posterior.mean(FLAT).view(PAIRS.shape[:2])
    width = sqrt_beta * posterior.deviation(FLAT).view(PAIRS.shape[:2])
    i = (mean - width).amax(dim=1).argmin()
    j = (mean + width)[i].argmax()
    proposed = propose("stable_opt", X, Y, maximize, sqrt_beta=sqrt_beta)
    assert torch.equal(proposed, PAIRS[i, j])


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


def sampled_values(posterior, points, num, seed):
    generator = torch.Generator().manual_seed(seed)
    normal = torch.randn(len(points), num, generator=generator, **DOUBLE)
    covariance = posterior.covariance(points, points)
    values, vectors = torch.linalg.eigh(covariance)
    root = vectors * values.clamp_min(0.0).sqrt()
    return posterior.mean(points).unsqueeze(-1) + root @ normal


@CASES
def test_max_value_entropy(seed, maximize):
    # The formula of Wang and Jegelka (2017) is that of observations without noise, of
    # which there is little here; the optimal values come from joint samples. Neither is
    # exactly what BoTorch does, so the proposal is good, not the same.
    X, Y = data(seed=seed)
    posterior = Posterior(X, Y, negate=not maximize)
    best = sampled_values(posterior, FLAT, 4000, seed).amax(dim=0)
    gamma = (best - posterior.mean(FLAT).unsqueeze(-1)) / posterior.deviation(
        FLAT
    ).unsqueeze(-1)
    log_cdf = torch.special.log_ndtr(gamma)
    ratio = (NORMAL.log_prob(gamma) - log_cdf).exp()
    value = (gamma * ratio / 2 - log_cdf).mean(dim=-1)
    proposed = propose(
        "max_value_entropy", X, Y, maximize, num_y_samples=64, num_points=1000
    )
    rank = value[(proposed == FLAT).all(dim=-1)] < value
    assert rank.sum() <= 3


@CASES
def test_knowledge_gradient(seed, maximize):
    # The exact knowledge gradient over all pairs and data, by integration over the
    # standardised observation.
    X, Y = data(seed=seed)
    posterior = Posterior(X, Y, negate=not maximize)
    choices = torch.cat([FLAT, X])
    scale = posterior.deviation(FLAT).square() + posterior.noise
    slope = posterior.covariance(choices, FLAT) / scale.sqrt()
    grid = torch.linspace(-6.0, 6.0, 2001, **DOUBLE)
    largest = (
        posterior.mean(choices)[:, None, None] + slope.unsqueeze(-1) * grid
    ).amax(dim=0)
    value = torch.trapezoid(largest * NORMAL.log_prob(grid).exp(), grid, dim=-1)
    proposed = propose(
        "knowledge_gradient", X, Y, maximize, num_fantasies=256, num_points=1000
    )
    found = value[(proposed == FLAT).all(dim=-1)]
    gain = value.max() - posterior.mean(choices).max()
    assert value.max() - found <= 0.03 * gain


@CASES
def test_joint_entropy_search(seed, maximize):
    # Conditioned on the place and the value of each sampled optimum, the variance of
    # the normal truncated at that value; the lower bound of Tu et al. (2022).
    X, Y = data(seed=seed)
    posterior = Posterior(X, Y, negate=not maximize)
    samples = sampled_values(posterior, FLAT, 2000, seed)
    best, where = samples.max(dim=0)
    variance = posterior.deviation(FLAT).square().unsqueeze(-1)
    covariance = posterior.covariance(FLAT, FLAT)
    at_best = covariance.diagonal()[where] + 1e-6
    weight = covariance[:, where] / at_best
    mean = posterior.mean(FLAT)
    given_mean = mean.unsqueeze(-1) + weight * (best - mean[where])
    given_variance = (variance - weight * covariance[:, where]).clamp_min(1e-9)
    gamma = (best - given_mean) / given_variance.sqrt()
    ratio = (NORMAL.log_prob(gamma) - torch.special.log_ndtr(gamma)).exp()
    left = given_variance * (1 - (gamma + ratio) * ratio).clamp_min(1e-7)
    noise = posterior.noise
    value = ((variance + noise).log() - (left + noise).log()).mean(dim=-1) / 2
    proposed = propose(
        "joint_entropy_search", X, Y, maximize, num_optima=512, num_points=1000
    )
    found = value[(proposed == FLAT).all(dim=-1)]
    # Both are averages over samples; the spread of either is about this.
    assert value.max() - found <= 0.05


@CASES
def test_worst_case_improvement(seed, maximize):
    # Improvement of the worst case over that of every evaluated x, by joint samples.
    X, Y = data(seed=seed)
    posterior = Posterior(X, Y, negate=not maximize)
    baseline = DOMAIN.join(DOMAIN.split(X)[0].unsqueeze(-2), DOMAIN.theta_choices)
    points = torch.cat([PAIRS, baseline]).flatten(0, 1)
    values = sampled_values(posterior, points, 20000, seed)
    worst = values.view(len(PAIRS) + len(X), -1, 20000).amin(dim=1)
    new, old = worst.split([len(PAIRS), len(X)])
    improvement = (new - old.amax(dim=0)).clamp_min(0.0)
    value, error = improvement.mean(-1), improvement.std(-1) / math.sqrt(20000)
    proposed = propose("worst_case_nei", X, Y, maximize, num_samples=512)
    x, theta = DOMAIN.split(proposed)
    i = (DOMAIN.x_choices == x).all(dim=-1).nonzero().item()
    # BoTorch's own average is over 512 quasi-random samples.
    assert value.max() - value[i] <= 4 * error.max() + 0.05 * value.max()
    j = posterior.mean(PAIRS[i]).argmin()
    assert torch.equal(theta, DOMAIN.theta_choices[j])


ALL = [
    "stable_opt",
    "worst_case_nei",
    "expected_improvement",
    "upper_confidence_bound",
    "max_value_entropy",
    "knowledge_gradient",
    "joint_entropy_search",
]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("domain", [BOX, DOMAIN])
def test_maximising_is_minimising_the_negative(name, domain):
    X, Y = data()
    first, second = (
        make_strategy(
            name, domain, maximize=maximize, model_factory=MODEL, **QUICK.get(name, {})
        ).propose(X, sign * Y, X_pending=X[:1] + 0.01, n=2, seed=1)
        for maximize, sign in ((True, 1.0), (False, -1.0))
    )
    width = BOUNDS[1] - BOUNDS[0]
    torch.testing.assert_close(first / width, second / width, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ALL)
def test_units_do_not_matter(name):
    # Raw data and those of the unit cube, with outcomes of order one, say the same.
    X, Y = data()
    width = BOUNDS[1] - BOUNDS[0]
    unit = RobustDomain(
        torch.tensor([[0.0] * 3, [1.0] * 3], **DOUBLE),
        [0],
        (DOMAIN.x_choices - BOUNDS[0, 1:]) / width[1:],
        (DOMAIN.theta_choices - BOUNDS[0, :1]) / width[:1],
    )
    strategy = make_strategy(
        name, unit, maximize=False, model_factory=MODEL, **QUICK.get(name, {})
    )
    scaled = (X - BOUNDS[0]) / width
    proposed = strategy.propose(scaled, (Y - 50.0) / 7.0, seed=5)[0]
    expected = propose(name, X, Y, maximize=False)
    torch.testing.assert_close(BOUNDS[0] + width * proposed, expected)


@pytest.mark.parametrize("name", ALL)
def test_pending_points_are_not_proposed_again(name):
    X, Y = data()
    strategy = make_strategy(
        name, DOMAIN, maximize=True, model_factory=MODEL, **QUICK.get(name, {})
    )
    first = strategy.propose(X, Y, seed=0)
    second = strategy.propose(X, Y, X_pending=first, seed=0)
    assert not torch.equal(first, second)
    assert torch.equal(strategy.propose(X, Y, n=2, seed=0), torch.cat([first, second]))


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


def test_prior_mean_must_be_constant():
    X, Y = data()
    model = SingleTaskGP(
        X, Y, mean_module=LinearMean(3), input_transform=Normalize(3, bounds=BOUNDS)
    )
    with pytest.raises(UnsupportedError, match="or a ZeroMean, got LinearMean"):
        members(ExactGPView(model.eval()))


def test_model_without_transforms():
    # A factory may return a model of the user's units.
    unit = RobustDomain(torch.tensor([[0.0] * 2, [1.0] * 2], **DOUBLE), [1])
    X = unit.sample(5, seed=0)
    Y = X.sin().sum(-1, keepdim=True)

    def plain(X, Y, Yvar, bounds, seed=0):
        model = SingleTaskGP(
            X,
            Y,
            covar_module=FixedGP(0.4)(X, Y, Yvar, bounds).covar_module,
            outcome_transform=None,
        )
        return model.eval().requires_grad_(False)

    for name in ("worst_case_nei", "joint_entropy_search"):
        with manual_seed(0):
            strategy = make_strategy(
                name, unit, maximize=False, model_factory=plain, **QUICK[name]
            )
            proposed = strategy.propose(X, Y, seed=0)
        assert ((proposed >= 0) & (proposed <= 1)).all()
