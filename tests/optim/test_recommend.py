import pytest
import torch
from botorch.exceptions.errors import (
    BotorchTensorDimensionError,
    InputDataError,
    UnsupportedError,
)
from botorch.exceptions.warnings import BotorchWarning
from botorch.models import ModelListGP, MultiTaskGP
from botorch.models.approximate_gp import SingleTaskVariationalGP
from torch import Tensor

from botorch_res import RobustDomain
from botorch_res.models import BayesianGP, DefaultGP, ExactGPView
from botorch_res.optim import mean_function, recommend_robust_optimum, worst_case
from botorch_res.optim.robust_optima import expected
from botorch_res.sampling import draw_fourier_samples
from botorch_res.seeding import seeded
from tests.brute_force import mean_at, pairs, robust_value, unit_grid, values_at
from tests.problems import (
    DOUBLE,
    Draws,
    line,
    make_domain,
    make_kernel,
    make_model,
    sloppy_domain,
    standardized,
    unit_domain,
)
from tests.problems import RAW as BOUNDS


def make_data(seed: int = 0, t: int = 12) -> tuple[Tensor, Tensor]:
    X = make_domain("box", BOUNDS).sample(t, seed=seed)
    x, theta = X.unbind(-1)
    Y = 50.0 + 10.0 * (0.4 * x).sin() + 3.0 * (x * theta / 150.0).cos()
    return X, Y.unsqueeze(-1)


def recommend_mean(model, domain, maximize):
    return recommend_robust_optimum(model, domain, maximize, num_samples=0)


@pytest.mark.parametrize("maximize", [True, False])
@pytest.mark.parametrize("finite", [True, False])
def test_robust_optimum_of_the_posterior_mean(maximize, finite):
    domain = make_domain("theta" if finite else "box", BOUNDS, line(7))
    X, Y = make_data()
    model = make_model(X, Y, bounds=BOUNDS)
    x, theta, value = recommend_mean(model, domain, maximize)
    assert x.shape == theta.shape == (1,)
    assert value.shape == ()
    expected = robust_value(mean_at(model, pairs(domain, 601, 201)), maximize)
    better = (value - expected) * (1.0 if maximize else -1.0)
    # The grid is coarse: it may be beaten by a little.
    assert -1e-3 * float(Y.std()) <= better <= 2e-2 * float(Y.std())
    mean = model.posterior(domain.join(x, theta).unsqueeze(0)).mean
    assert float(mean.detach()) == pytest.approx(float(value), rel=1e-9)


def test_batch_is_averaged():
    X, Y = make_data()
    X, Y = torch.stack([X, X]), torch.stack([Y, 1.3 * Y])
    model, domain = make_model(X, Y, bounds=BOUNDS), make_domain("box", BOUNDS)
    _, _, value = recommend_mean(model, domain, False)
    with torch.no_grad():
        posterior = model.posterior(pairs(domain, 301, 101).unsqueeze(1))
    expected = robust_value(posterior.mean.squeeze(-1).mean(dim=1))
    assert float(value) == pytest.approx(float(expected), abs=2e-2 * float(Y.std()))


@pytest.mark.parametrize("factory", [DefaultGP(), BayesianGP(3, 10)])
def test_categories(factory):
    """Of x, and of theta: in a box, between listed values, is no setting."""
    bounds = torch.cat([BOUNDS, line(2, 0.0, 7.0), line(2, 0.0, 9.0)], dim=-1)
    x_choices, theta_choices = {2: [0.0, 3.0, 7.0]}, {3: [0.0, 9.0]}
    domain = RobustDomain(bounds, [1, 3], x_choices, theta_choices, cat_dims=[2, 3])
    X = domain.sample(16, seed=1)
    Y = 3.0 * (X[:, 0] / 3 + X[:, 2]).sin() + X[:, 1] / 100 * (X[:, 3] - 4).sign()
    model = factory(X, Y.unsqueeze(-1), None, bounds, cat_dims=domain.cat_dims)
    optimum = recommend_mean(model, domain, False)
    settings = torch.cartesian_prod(
        torch.linspace(-5.0, 10.0, 301, **DOUBLE), domain.x.rows[:, 0]
    )
    thetas = torch.cartesian_prod(
        torch.linspace(100.0, 300.0, 41, **DOUBLE), domain.theta.rows[:, 0]
    )
    z = domain.join(settings.unsqueeze(1), thetas)
    with torch.no_grad():
        posterior = model.posterior(z.view(-1, 1, 4))
        mean = getattr(posterior, "mixture_mean", posterior.mean)
        expected = robust_value(mean.view(z.shape[:2]))
        found = domain.join(optimum.x, optimum.theta)
        posterior = model.posterior(found.unsqueeze(0))
        mean = getattr(posterior, "mixture_mean", posterior.mean)
    assert float(mean) == pytest.approx(float(optimum.value), rel=1e-6)
    assert optimum.value <= expected + 1e-3 * Y.std()
    assert domain.x.contains(optimum.x)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize("is_controllable", [True, False])
def test_multi_task_model(is_controllable):
    """Its task is a listed column, though BoTorch counts an output for each task."""
    lists = {1: [0.0, 1.0, 2.0]}
    bounds = torch.tensor([[0.0, 0.0, 0.0], [1.0, 2.0, 1.0]], **DOUBLE)
    domain = (
        RobustDomain(bounds, [2], x_choices=lists)
        if is_controllable
        else RobustDomain(bounds, [1, 2], theta_choices=lists)
    )
    X = domain.sample(18, seed=2)
    Y = (5.0 * X[:, 0] + X[:, 1]).sin() + (1.0 + X[:, 1]) * (X[:, 2] - X[:, 0]).square()
    with seeded(0):
        model = MultiTaskGP(X, standardized(Y.unsqueeze(-1)), task_feature=1).eval()
    optimum = recommend_mean(model, domain, False)
    z = torch.cartesian_prod(line(201)[:, 0], domain.bounds.new_tensor(lists[1]))
    z = torch.cat([z.repeat_interleave(51, 0), line(51).repeat(len(z), 1)], dim=-1)
    with torch.no_grad():
        mean = torch.cat([model.posterior(part).mean for part in z.split(3000)])
    mean = mean.view(201, 3, 51).amax(dim=-1)
    expected = mean.amin() if is_controllable else mean.amax(dim=-1).amin()
    assert optimum.value == pytest.approx(float(expected), abs=2e-3)
    found = model.posterior(domain.join(optimum.x, optimum.theta).unsqueeze(0)).mean
    assert float(found.detach()) == pytest.approx(float(optimum.value), abs=1e-9)


def test_any_model_with_a_mean():
    X, Y = make_data()
    unit = (X - BOUNDS[0]) / (BOUNDS[1] - BOUNDS[0])
    with seeded(0):
        model = SingleTaskVariationalGP(unit, standardized(Y), inducing_points=6)
    domain = unit_domain()
    model.double().eval()
    with pytest.warns(BotorchWarning, match="mean, .* SingleTaskVariationalGP"):
        x, theta, value = recommend_robust_optimum(model, domain, maximize=True)
    mean = model.posterior(domain.join(x, theta).unsqueeze(0)).mean
    assert float(mean.detach()) == pytest.approx(float(value), abs=1e-9)


def test_models_and_domains_that_do_not_fit():
    X, Y = make_data()
    model = make_model(X, Y, bounds=BOUNDS)
    batch = make_model(X.expand(2, -1, -1), Y.expand(2, -1, -1), bounds=BOUNDS)
    two = make_model(X, torch.cat([Y, Y], -1))
    wide = RobustDomain(torch.cat([BOUNDS, BOUNDS], dim=-1), [1])
    for fitted in (model, batch, ModelListGP(model)):
        with pytest.raises(
            BotorchTensorDimensionError, match=r"`model` to accept .*shape \(1, 4\)"
        ):
            recommend_robust_optimum(fitted, wide)
    domain = make_domain("box", BOUNDS)
    with pytest.raises(InputDataError, match=r"a RobustDomain, got Tensor"):
        recommend_robust_optimum(model, BOUNDS)
    with pytest.raises(UnsupportedError, match="got SingleTaskGP of 2 outputs"):
        recommend_robust_optimum(two, domain)
    with pytest.raises(UnsupportedError, match="got RobustDomain of no outputs"):
        recommend_robust_optimum(domain, domain)


class TestExpectedWorstCase:
    """Its minimum is recommended, if it is below that at the mean's robust optimum."""

    def problem(self, domain, maximize, seed=0):
        """Well known where x < 0.4, where it is 0.6 at best. The mean beyond is 0."""
        X = Draws(seed).uniform(40, domain.dim)
        X[:, 0] *= 0.4
        wave = 0.3 * (5.0 * X[:, -1:] + seed).sin()
        Y = 0.6 + 4.0 * (X[:, :1] - 0.2).square() + wave * (X[:, :1] - 0.1)
        kernel = make_kernel(None, 0.15, dim=domain.dim)
        return make_model(X, -Y if maximize else Y, 1e-3, kernel)

    def worst_cases(self, model, domain, x, maximize=False, num_samples=16):
        """The worst cases of the functions ``n x 16``, by a grid of thetas."""
        view = ExactGPView(model, negate=maximize)
        samples = draw_fourier_samples(view, num_samples, seed=0, domain=domain)
        theta = domain.theta.choices
        if theta is None:
            theta = torch.lerp(*domain.theta.bounds, line(401))
        z = domain.join(x.unsqueeze(-2), theta)
        return values_at(samples, z).amax(dim=-1).flatten(end_dim=-2).T

    def average(self, model, domain, maximize, x, num_samples=16):
        return self.worst_cases(model, domain, x, maximize, num_samples).mean(dim=-1)

    @pytest.mark.parametrize("maximize", [True, False])
    @pytest.mark.parametrize(
        "domain",
        [unit_domain(), make_domain("theta"), make_domain("x"), sloppy_domain(1, 0, 1)],
    )
    def test_equals_brute_force(self, domain, maximize, monkeypatch):
        monkeypatch.setattr(expected, "SIGNIFICANCE", 0.0)
        model = self.problem(domain, maximize)
        before = recommend_mean(model, domain, maximize).x
        x, theta, value = recommend_robust_optimum(model, domain, maximize)
        grid = line(801) if domain.x.choices is None else domain.x.choices
        points = torch.cat([x.unsqueeze(0), before.unsqueeze(0), grid])
        found, old, *best = self.average(model, domain, maximize, points)
        assert found <= min(best) + 1e-4
        assert found < old - 0.05
        # The value is that of the mean.
        worst = worst_case(mean_function(model, maximize), x.unsqueeze(0), domain)
        assert theta.tolist() == pytest.approx(worst.theta.flatten().tolist())
        sign = -1.0 if maximize else 1.0
        assert sign * value == pytest.approx(float(worst.value), abs=1e-9)

    def test_in_two_columns_with_constraints(self, monkeypatch):
        monkeypatch.setattr(expected, "SIGNIFICANCE", 0.0)
        domain = unit_domain(2, 1)
        model = self.problem(domain, False)
        order = [(torch.tensor([0, 1]), torch.tensor([-1.0, 1.0]), 0.3)]
        x = recommend_robust_optimum(
            model, domain, False, inequality_constraints=order
        ).x
        assert x[1] - x[0] >= 0.3 - 1e-9
        grid = unit_grid([41, 41], line(2))
        grid = grid[grid[:, 1] - grid[:, 0] >= 0.3 - 1e-9]
        restricted = domain.restricted(inequality_constraints=order)
        points = torch.cat([x.unsqueeze(0), grid])
        found, *best = self.average(model, restricted, False, points)
        assert found <= min(best) + 1e-3

    def test_ensemble(self, monkeypatch):
        """The functions of all members count, as many as for a single model."""
        monkeypatch.setattr(expected, "SIGNIFICANCE", 0.0)
        domain = unit_domain()
        models = [self.problem(domain, False, seed) for seed in (0, 1)]
        X = torch.stack([model.train_inputs[0] for model in models])
        Y = torch.stack([model.train_targets for model in models]).unsqueeze(-1)
        model = make_model(X, Y, 1e-2, make_kernel(None, 0.15, batch=(2,)))
        x = recommend_robust_optimum(model, domain, maximize=False).x
        points = torch.cat([x.unsqueeze(0), line(801)])
        found, *best = self.average(model, domain, False, points, num_samples=8)
        assert found <= min(best) + 1e-4

    def test_error_of_the_average(self, monkeypatch):
        """What is better by less than a multiple of it is not taken."""
        domain = unit_domain()
        model = self.problem(domain, False)
        before = recommend_mean(model, domain, False).x
        best = recommend_robust_optimum(model, domain, False).x
        old, new = self.worst_cases(model, domain, torch.stack([before, best]))
        gain = float((old - new).mean() / ((old - new).std() / 4.0))
        for multiple, x in ((gain - 0.01, best), (gain + 0.01, before)):
            monkeypatch.setattr(expected, "SIGNIFICANCE", multiple)
            found = recommend_robust_optimum(model, domain, False).x
            assert torch.equal(found, x)

    def test_stays_where_all_is_known(self):
        X = unit_domain().sample(60, seed=0)
        Y = (5.0 * X[:, :1]).sin() + X[:, 1:] * X[:, :1]
        model = make_model(X, Y, 1e-6, make_kernel(None, 0.3))
        best = recommend_robust_optimum(model, unit_domain(), maximize=False)
        assert torch.equal(best.x, recommend_mean(model, unit_domain(), False).x)

    def test_the_seed_counts(self):
        """The functions of another seed have another average."""
        model = self.problem(unit_domain(), False)
        settings = {
            float(recommend_robust_optimum(model, unit_domain(), False, seed=seed).x)
            for seed in (0, 0, 1)
        }
        assert len(settings) == 2

    def test_bad_input(self):
        model = self.problem(unit_domain(), False)
        for num_samples in (-1, 1, 2.5, None):
            with pytest.raises(InputDataError, match="`num_samples` to be a whole num"):
                recommend_robust_optimum(model, unit_domain(), num_samples=num_samples)
        with pytest.raises(InputDataError, match="`seed` to be"):
            recommend_robust_optimum(model, unit_domain(), seed=0.5)
