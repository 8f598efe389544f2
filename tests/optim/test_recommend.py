import pytest
import torch
from botorch.exceptions.errors import (
    BotorchTensorDimensionError,
    InputDataError,
    UnsupportedError,
)
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.approximate_gp import SingleTaskVariationalGP
from botorch.models.transforms import Normalize
from torch import Tensor

from botorch_res import RobustDomain
from botorch_res.optim import recommend_robust_optimum

BOUNDS = torch.tensor([[-5.0, 100.0], [10.0, 300.0]], dtype=torch.double)


def make_data(seed: int = 0, t: int = 12) -> tuple[Tensor, Tensor]:
    X = RobustDomain(BOUNDS, [1]).sample(t, seed=seed)
    x, theta = X.unbind(-1)
    Y = 50.0 + 10.0 * (0.4 * x).sin() + 3.0 * (x * theta / 150.0).cos()
    return X, Y.unsqueeze(-1)


def brute_force(model, domain: RobustDomain, maximize: bool) -> float:
    """Max-min (or min-max) of BoTorch's posterior mean on a fine grid."""
    x = torch.linspace(-5.0, 10.0, 601, dtype=torch.double)[:, None, None]
    theta = domain.theta.choices
    if theta is None:
        theta = torch.linspace(100.0, 300.0, 201, dtype=torch.double).unsqueeze(-1)
    with torch.no_grad():
        mean = model.posterior(domain.join(x, theta)).mean.squeeze(-1)
    if mean.ndim > 2:
        mean = mean.mean(dim=0)
    if maximize:
        return float(mean.amin(dim=-1).amax())
    return float(mean.amax(dim=-1).amin())


@pytest.mark.parametrize("maximize", [True, False])
@pytest.mark.parametrize("finite", [True, False])
def test_robust_optimum_of_the_posterior_mean(maximize, finite):
    choices = torch.linspace(100.0, 300.0, 7, dtype=torch.double).unsqueeze(-1)
    domain = RobustDomain(BOUNDS, [1], theta_choices=choices if finite else None)
    X, Y = make_data()
    model = SingleTaskGP(X, Y, input_transform=Normalize(2, bounds=BOUNDS))
    x, theta, value = recommend_robust_optimum(model, domain, maximize=maximize)
    assert x.shape == theta.shape == (1,)
    assert value.shape == ()
    expected = brute_force(model, domain, maximize)
    better = (value - expected) * (1.0 if maximize else -1.0)
    # The grid is coarse: it may be beaten by a little.
    assert -1e-3 * float(Y.std()) <= better <= 2e-2 * float(Y.std())
    mean = model.posterior(domain.join(x, theta).unsqueeze(0)).mean
    assert float(mean.detach()) == pytest.approx(float(value), rel=1e-9)


def test_batch_is_averaged():
    X, Y = make_data()
    model = SingleTaskGP(
        torch.stack([X, X]),
        torch.stack([Y, 1.3 * Y]),
        input_transform=Normalize(2, bounds=BOUNDS),
    )
    domain = RobustDomain(BOUNDS, [1])
    _, _, value = recommend_robust_optimum(model, domain, maximize=False)
    x = torch.linspace(-5.0, 10.0, 301, dtype=torch.double)[:, None, None]
    theta = torch.linspace(100.0, 300.0, 101, dtype=torch.double).unsqueeze(-1)
    with torch.no_grad():
        mean = model.posterior(domain.join(x, theta).unsqueeze(1)).mean.mean(dim=1)
    expected = mean.squeeze(-1).amax(dim=-1).amin()
    assert float(value) == pytest.approx(float(expected), abs=2e-2 * float(Y.std()))


def test_any_model_with_a_mean():
    X, Y = make_data()
    unit = (X - BOUNDS[0]) / (BOUNDS[1] - BOUNDS[0])
    torch.manual_seed(0)
    model = SingleTaskVariationalGP(unit, (Y - Y.mean()) / Y.std(), inducing_points=6)
    domain = RobustDomain(torch.tensor([[0.0, 0.0], [1.0, 1.0]]).double(), [1])
    model.double().eval()
    x, theta, value = recommend_robust_optimum(model, domain, maximize=True)
    mean = model.posterior(domain.join(x, theta).unsqueeze(0)).mean
    assert float(mean.detach()) == pytest.approx(float(value), abs=1e-9)


def test_models_and_domains_that_do_not_fit():
    X, Y = make_data()
    transform = Normalize(2, bounds=BOUNDS)
    model = SingleTaskGP(X, Y, input_transform=transform)
    batch = SingleTaskGP(
        X.expand(2, -1, -1), Y.expand(2, -1, -1), input_transform=transform
    )
    two = SingleTaskGP(X, torch.cat([Y, Y], -1), input_transform=transform)
    wide = RobustDomain(torch.cat([BOUNDS, BOUNDS], dim=-1), [1])
    for fitted in (model, batch, ModelListGP(model)):
        with pytest.raises(
            BotorchTensorDimensionError, match=r"`model` to accept .*shape \(1, 4\)"
        ):
            recommend_robust_optimum(fitted, wide)
    domain = RobustDomain(BOUNDS, [1])
    with pytest.raises(InputDataError, match=r"a RobustDomain, got Tensor"):
        recommend_robust_optimum(model, BOUNDS)
    with pytest.raises(UnsupportedError, match="got SingleTaskGP of 2 outputs"):
        recommend_robust_optimum(two, domain)
    with pytest.raises(UnsupportedError, match="got RobustDomain of no outputs"):
        recommend_robust_optimum(domain, domain)
