import pytest
import torch
from botorch.exceptions.errors import (
    BotorchTensorDimensionError,
    InputDataError,
    UnsupportedError,
)
from botorch.models import ModelListGP, MultiTaskGP
from botorch.models.approximate_gp import SingleTaskVariationalGP
from torch import Tensor

from botorch_res import RobustDomain
from botorch_res.models import BayesianGP, DefaultGP
from botorch_res.optim import recommend_robust_optimum
from botorch_res.seeding import seeded
from tests.brute_force import mean_at, pairs, robust_value
from tests.problems import (
    DOUBLE,
    line,
    make_domain,
    make_model,
    standardized,
    unit_domain,
)
from tests.problems import RAW as BOUNDS


def make_data(seed: int = 0, t: int = 12) -> tuple[Tensor, Tensor]:
    X = make_domain("box", BOUNDS).sample(t, seed=seed)
    x, theta = X.unbind(-1)
    Y = 50.0 + 10.0 * (0.4 * x).sin() + 3.0 * (x * theta / 150.0).cos()
    return X, Y.unsqueeze(-1)


@pytest.mark.parametrize("maximize", [True, False])
@pytest.mark.parametrize("finite", [True, False])
def test_robust_optimum_of_the_posterior_mean(maximize, finite):
    domain = make_domain("theta" if finite else "box", BOUNDS, line(7))
    X, Y = make_data()
    model = make_model(X, Y, bounds=BOUNDS)
    x, theta, value = recommend_robust_optimum(model, domain, maximize=maximize)
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
    _, _, value = recommend_robust_optimum(model, domain, maximize=False)
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
    optimum = recommend_robust_optimum(model, domain, maximize=False)
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
    optimum = recommend_robust_optimum(model, domain, maximize=False)
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
