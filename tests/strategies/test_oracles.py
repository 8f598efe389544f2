"""Each strategy's proposal on a finite domain, computed in another way."""

import math

import pytest
import torch
from botorch.models import SingleTaskGP
from botorch.models.utils.gpytorch_modules import MIN_INFERRED_NOISE_LEVEL
from botorch.posteriors.gpytorch import GPyTorchPosterior
from botorch.sampling.normal import SobolQMCNormalSampler
from botorch.utils.sampling import manual_seed
from gpytorch.distributions import MultivariateNormal
from linear_operator import to_linear_operator
from torch.distributions import Normal

from botorch_res import RobustDomain
from botorch_res.models import BayesianGP, ExactGPView, FixedGP
from botorch_res.models.members import members
from botorch_res.strategies import make_strategy
from botorch_res.strategies.worst_case_improvement import Jitter, WorstCaseImprovement
from tests.strategies.options import QUICK

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


def generator(seed):
    return torch.Generator().manual_seed(seed)


def unit_cube(z):
    return (z - BOUNDS[0]) / (BOUNDS[1] - BOUNDS[0])


def sampled_values(posterior, points, num, seed):
    normal = torch.randn(len(points), num, generator=generator(seed), **DOUBLE)
    covariance = posterior.covariance(points, points)
    values, vectors = torch.linalg.eigh(covariance)
    root = vectors * values.clamp_min(0.0).sqrt()
    return posterior.mean(points).unsqueeze(-1) + root @ normal


def built(name, X, Y, maximize, **options):
    """BoTorch's acquisition function, and its values at all pairs.

    The proposal has to be the best of them.
    """
    strategy = make_strategy(
        name,
        DOMAIN,
        maximize=maximize,
        model_factory=MODEL,
        **{**QUICK[name], "num_points": 1000, **options},
    )
    with manual_seed(5):
        acqf = strategy.acquisition_function(X, Y, None, X[:0], seed=5)
    with torch.no_grad():
        value = acqf(FLAT.unsqueeze(-2))
    assert torch.equal(strategy.propose(X, Y, seed=5)[0], FLAT[value.argmax()])
    return acqf.acquisition_functions[0], value


@CASES
def test_max_value_entropy(seed, maximize):
    X, Y = data(seed=seed)
    posterior = Posterior(X, Y, negate=not maximize)
    acqf, _ = built("max_value_entropy", X, Y, maximize, num_optima=20)
    # The information that a noisy observation holds about the sampled optimal values,
    # by integration over the standardised observation.
    best = acqf.posterior_max_values.view(-1, 1, 1)
    mean, variance = posterior.mean(FLAT), posterior.deviation(FLAT).square()
    noisy = (variance + posterior.noise).sqrt()
    grid = torch.linspace(-8.0, 8.0, 801, **DOUBLE)
    later_mean = mean.unsqueeze(-1) + (variance / noisy).unsqueeze(-1) * grid
    later_deviation = (variance * posterior.noise).sqrt() / noisy
    log_ratio = torch.special.log_ndtr(
        (best - later_mean) / later_deviation.unsqueeze(-1)
    ) - torch.special.log_ndtr((best - mean.unsqueeze(-1)) / variance.sqrt()[:, None])
    density = NORMAL.log_prob(grid) + log_ratio  # without the factor 1 / noisy
    entropy = -torch.trapezoid(density.exp() * density, grid, dim=-1)
    expected = 0.5 * math.log(2 * math.pi * math.e) - entropy.mean(dim=0)
    # BoTorch averages over quasi-random observations. How far the averages of several
    # such sets are apart tells how far they may be from the integral; the last term is
    # for the bound that BoTorch sets to probabilities.
    found = []
    for replicate in range(8):
        acqf.sampler = SobolQMCNormalSampler(torch.Size([1024]), seed=replicate)
        found.append(acqf(unit_cube(FLAT).unsqueeze(-2)))
    smallest, largest = torch.stack(found).aminmax(dim=0)
    error = largest - smallest + 1e-4
    assert ((smallest - error < expected) & (expected < largest + error)).all()
    assert error.max() < 0.05 * expected.max()

    # BoTorch's optimal values are those of independent points. Slepian's inequality:
    # these are larger than those of points that are positively correlated.
    choices = torch.cat([FLAT, X])
    joint = sampled_values(posterior, choices, 4000, seed).amax(dim=0)
    normal = torch.randn(4000, len(choices), **DOUBLE, generator=generator(seed))
    alone = posterior.mean(choices) + posterior.deviation(choices) * normal
    alone = alone.amax(dim=-1)
    best = best.flatten()
    slack = 4 * best.std() / math.sqrt(len(best))
    assert joint.mean() - slack < best.mean() < alone.mean() + slack


@CASES
def test_knowledge_gradient(seed, maximize):
    # The largest posterior mean over all pairs and data after an observation, which
    # the mean is linear in: for the imagined ones, and by integration over all.
    X, Y = data(seed=seed)
    posterior = Posterior(X, Y, negate=not maximize)
    choices = torch.cat([FLAT, X])
    scale = posterior.deviation(FLAT).square() + posterior.noise
    slope = posterior.covariance(choices, FLAT) / scale.sqrt()

    def largest(standardised):
        mean = posterior.mean(choices)[:, None, None]
        return (mean + slope.unsqueeze(-1) * standardised).amax(dim=0)

    acqf, value = built("knowledge_gradient", X, Y, maximize, num_fantasies=64)
    imagined = largest(acqf.sampler.base_samples.flatten())
    torch.testing.assert_close(value, imagined.mean(dim=-1), rtol=0, atol=1e-6)
    grid = torch.linspace(-6.0, 6.0, 2001, **DOUBLE)
    weight = NORMAL.log_prob(grid).exp()
    expected = torch.trapezoid(largest(grid) * weight, grid, dim=-1)
    square = torch.trapezoid(largest(grid).square() * weight, grid, dim=-1)
    error = (square - expected.square()).clamp_min(0.0).sqrt() / math.sqrt(64)
    assert ((value - expected).abs() <= 4 * error + 1e-6).all()


@CASES
def test_joint_entropy_search(seed, maximize):
    X, Y = data(seed=seed)
    posterior = Posterior(X, Y, negate=not maximize)
    acqf, value = built("joint_entropy_search", X, Y, maximize, num_optima=512)
    # Conditioned on the place and the value of each sampled optimum, the variance of
    # the normal truncated at that value; the lower bound of Tu et al. (2022).
    where = torch.cdist(acqf.optimal_inputs.flatten(0, 1), unit_cube(FLAT)).argmin(-1)
    best = acqf.optimal_outputs.flatten()
    variance = posterior.deviation(FLAT).square().unsqueeze(-1)
    covariance = posterior.covariance(FLAT, FLAT)
    # BoTorch takes optimal values for observations with this noise, and the average
    # of the noise of all observations for that of a new one.
    at_best = covariance.diagonal()[where] + MIN_INFERRED_NOISE_LEVEL
    noise = posterior.noise
    later_noise = (len(X) * noise + MIN_INFERRED_NOISE_LEVEL) / (len(X) + 1)
    weight = covariance[:, where] / at_best
    mean = posterior.mean(FLAT)
    given_mean = mean.unsqueeze(-1) + weight * (best - mean[where])
    given_variance = variance - weight * covariance[:, where]
    gamma = (best - given_mean) / given_variance.sqrt()
    ratio = (NORMAL.log_prob(gamma) - torch.special.log_ndtr(gamma)).exp()
    left = given_variance * (1 - (gamma + ratio) * ratio)
    expected = ((variance + noise).log() - (left + later_noise).log()).mean(dim=-1) / 2
    torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-5)

    # The sampled optima are those of the posterior.
    samples = sampled_values(posterior, FLAT, 8000, seed)
    largest, place = samples.max(dim=0)
    frequency = torch.bincount(place, minlength=len(FLAT)) / 8000
    found = torch.bincount(where, minlength=len(FLAT)) / 512
    # The smallest variance is that of a place that is found once.
    error = (frequency * (1 - frequency)).clamp_min(1 / 512).div(512).sqrt()
    assert ((found - frequency).abs() / error).max() < 4
    error = largest.std() * math.sqrt(1 / 512 + 1 / 8000)
    assert (best.mean() - largest.mean()).abs() < 4 * error


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
    strategy = make_strategy(
        "worst_case_nei",
        DOMAIN,
        maximize=maximize,
        model_factory=MODEL,
        num_samples=1024,
    )
    acqf = WorstCaseImprovement(
        *(strategy.fit(X, Y), DOMAIN, DOMAIN.theta_choices, X),
        maximize=maximize,
        X_pending=None,
        num_samples=1024,
        seed=5,
    )
    with torch.no_grad():
        value = acqf(PAIRS[:, :1])
    error = improvement.std(dim=-1) * math.sqrt(1 / 1024 + 1 / 20000)
    difference = value.exp() - improvement.mean(dim=-1)
    # Where no sample improves, BoTorch's smoothed improvement is not quite zero.
    assert (difference.abs() <= 4 * error + 1e-12).all()
    i = value.argmax()
    j = posterior.mean(PAIRS[i]).argmin()
    assert torch.equal(strategy.propose(X, Y, seed=5)[0], PAIRS[i, j])


@pytest.mark.parametrize("pending", [False, True])
def test_pruning_of_the_baseline_is_seeded(pending):
    # BoTorch would keep three and four points at these states of the global generator.
    X, Y = data(seed=3)
    model = MODEL(X, Y, None, BOUNDS)
    values = []
    for state in (0, 11):
        with manual_seed(state):
            before = torch.get_rng_state()
            acqf = WorstCaseImprovement(
                *(model, DOMAIN, DOMAIN.theta_choices, X),
                maximize=False,
                X_pending=FLAT[:2] if pending else None,
                num_samples=64,
                seed=5,
            )
            assert torch.equal(torch.get_rng_state(), before)
        values.append(acqf(PAIRS[:, :1]))
    assert torch.equal(*values)


def test_jitter_is_all_that_is_added():
    X, Y = data()
    model = MODEL(X, Y, None, BOUNDS)
    with torch.no_grad():
        before = model.posterior(FLAT[:9])
        after = model.posterior(FLAT[:9], posterior_transform=Jitter())
    added = after.covariance_matrix - before.covariance_matrix
    torch.testing.assert_close(added, 1e-8 * torch.eye(9, **DOUBLE), rtol=1e-4, atol=0)
    assert torch.equal(after.mean, before.mean)
    assert torch.equal(Jitter().evaluate(Y), Y)


def test_jitter_does_not_factorise():
    """Not all points that BoTorch knows, in every call, nor what rounding spoilt."""
    covariance = torch.ones(3, 3, **DOUBLE) - 1e-6 * torch.eye(3, **DOUBLE)
    lazy = MultivariateNormal(torch.zeros(3, **DOUBLE), to_linear_operator(covariance))
    after = Jitter()(GPyTorchPosterior(lazy))
    expected = covariance + 1e-8 * torch.eye(3, **DOUBLE)
    torch.testing.assert_close(after.covariance_matrix, expected)


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
@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_units_do_not_matter(name, scale):
    # Raw data and those of the unit cube, with outcomes of another size, say the same.
    X, Y = data()
    width = BOUNDS[1] - BOUNDS[0]
    unit = RobustDomain(
        torch.tensor([[0.0] * 3, [1.0] * 3], **DOUBLE),
        [0],
        theta_choices=(DOMAIN.theta_choices - BOUNDS[0, :1]) / width[:1],
    )
    raw = RobustDomain(BOUNDS, [0], theta_choices=DOMAIN.theta_choices)
    first, second = (
        make_strategy(
            name, domain, maximize=False, model_factory=MODEL, **QUICK.get(name, {})
        ).propose(points, values, seed=5)
        for domain, points, values in (
            (raw, X, Y),
            (unit, unit_cube(X), scale * (Y - 50.0)),
        )
    )
    torch.testing.assert_close(unit_cube(first), second, rtol=0, atol=1e-4)


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


@pytest.mark.parametrize(
    ("name", "optima"),
    [
        ("max_value_entropy", "posterior_max_values"),
        ("joint_entropy_search", "optimal_outputs"),
    ],
)
def test_ensemble_shares_out_the_sampled_optima(name, optima):
    X, Y = data()
    factory = BayesianGP(num_samples=3, num_steps=5)
    options = {"maximize": False, "model_factory": factory, "num_optima": 8}
    strategy = make_strategy(name, DOMAIN, **{**QUICK[name], **options})
    with manual_seed(0):
        acqf = strategy.acquisition_function(X, Y, None, X[:0], seed=0)
    sampled = [getattr(member, optima) for member in acqf.acquisition_functions]
    # Three for each of three members, and each member's are its own.
    assert [values.numel() for values in sampled] == [3, 3, 3]
    assert len(torch.cat([values.flatten() for values in sampled]).unique()) > 3
    # Of more members, four are used.
    strategy.model_factory = BayesianGP(num_samples=7, num_steps=5)
    strategy._last_fit = None
    with manual_seed(0):
        acqf = strategy.acquisition_function(X, Y, None, X[:0], seed=0)
    every = members(ExactGPView(strategy.fit(X, Y), negate=True, model_units=True))
    for used, model in zip(acqf.acquisition_functions, every[::2], strict=True):
        scale = model.covar_module.outputscale
        assert torch.equal(used.model.covar_module.outputscale, scale)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", ["expected_improvement", "joint_entropy_search"])
def test_large_finite_domains_are_searched_in_rounds(name, seed, monkeypatch):
    domain = RobustDomain(
        BOUNDS,
        [0],
        x_choices=BOX.sample_x(400, seed=3),
        theta_choices=BOX.sample_theta(10, seed=4),
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
    with manual_seed(5), torch.no_grad():
        acqf = build(X, Y, None, X[:0], 5)
        values, best = acqf(pairs.unsqueeze(-2)), acqf(proposed.unsqueeze(-2))
    # Better than a random search of the same size would be, and among the best.
    assert best >= acqf(points.unsqueeze(-2)).max() - 1e-9
    assert (values > best + 1e-9).sum() <= 8
    assert torch.equal(strategy.propose(X, Y, seed=5), proposed)


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
