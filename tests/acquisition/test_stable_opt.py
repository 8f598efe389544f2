import pytest
import torch
from botorch.exceptions.errors import InputDataError, UnsupportedError
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from gpytorch.kernels import RQKernel
from torch import Tensor

from botorch_res import RobustDomain
from botorch_res.acquisition.stable_opt import StableOpt
from botorch_res.models import BayesianGP

DOUBLE = {"dtype": torch.double}
BOUNDS = torch.tensor([[-5.0, 100.0], [10.0, 300.0]], **DOUBLE)

pytestmark = pytest.mark.filterwarnings(
    "ignore::botorch.exceptions.warnings.InputDataWarning"
)


def make_domain(kind: str, seed: int = 0) -> RobustDomain:
    choices = RobustDomain(BOUNDS, [1]).sample(9, seed=seed)
    theta, x = {"theta_choices": choices[:, 1:]}, {"x_choices": choices[:, :1]}
    return RobustDomain(
        BOUNDS, [1], **{"box": {}, "theta": theta, "x": x, "both": theta | x}[kind]
    )


def make_model(seed: int, *batch: int) -> SingleTaskGP:
    generator = torch.Generator().manual_seed(seed)
    t = int(torch.randint(1, 12, (), generator=generator))
    unit = torch.rand(*batch, t, 2, generator=generator, **DOUBLE)
    Y = 7.0 + 3.0 * torch.randn(*batch, t, 1, generator=generator, **DOUBLE)
    model = SingleTaskGP(
        BOUNDS[0] + (BOUNDS[1] - BOUNDS[0]) * unit,
        Y,
        train_Yvar=torch.full_like(Y, 1e-2),
        input_transform=Normalize(2, bounds=BOUNDS),
        outcome_transform=None,
    )
    model.covar_module.lengthscale = 0.15 + 0.5 * torch.rand(2, generator=generator)
    return model


def brute_force(
    model: SingleTaskGP, domain: RobustDomain, beta: float, maximize: bool, n: int = 201
) -> tuple[Tensor, float]:
    """The rule on a grid, from BoTorch's posterior."""
    x = torch.linspace(-5.0, 10.0, n, **DOUBLE).unsqueeze(-1)
    theta = torch.linspace(100.0, 300.0, n, **DOUBLE).unsqueeze(-1)
    x = x if domain.x_choices is None else domain.x_choices
    theta = theta if domain.theta_choices is None else domain.theta_choices
    points = domain.join(x.unsqueeze(-2), theta)
    with torch.no_grad():
        posterior = model.posterior(points.unsqueeze(-2))
    mean = posterior.mean[..., 0, 0] * (-1.0 if maximize else 1.0)
    deviation = beta**0.5 * posterior.variance[..., 0, 0].sqrt()
    value, i = (mean - deviation).amax(dim=-1).min(dim=0)
    j = (mean + deviation)[i].argmax()
    return points[i, j], -float(value)


@pytest.mark.parametrize("maximize", [True, False])
def test_equals_brute_force_on_finite_domains(maximize):
    for seed in range(50):
        model, domain = make_model(seed), make_domain("both", seed)
        beta = (1.0, 4.0, 16.0)[seed % 3]
        expected, value = brute_force(model, domain, beta, maximize)
        candidates, found = StableOpt(model, domain, beta, maximize).optimize()
        assert torch.equal(candidates, expected.unsqueeze(0))
        assert float(found) == pytest.approx(value, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("kind", ["box", "theta", "x"])
def test_at_least_as_good_as_a_grid(kind):
    for seed in range(8):
        model, domain = make_model(seed), make_domain(kind, seed)
        expected, value = brute_force(model, domain, beta=4.0, maximize=False)
        candidates, found = StableOpt(model, domain, maximize=False).optimize()
        # The signal has a variance of one, and slopes of up to about 7 per box: half a
        # spacing of the grid is worth up to 0.02, in each of the two variables.
        assert value - 5e-3 <= float(found) <= value + 4e-2
        if kind == "x":
            assert torch.equal(candidates[:, 0], expected[:1])


def test_batch_is_its_members():
    model, domain = make_model(3, 4), make_domain("both")
    inputs = model.train_inputs[0]
    candidates, values = StableOpt(model, domain, maximize=False).optimize()
    assert candidates.shape == (4, 1, 2)
    assert values.shape == (4,)
    for i in range(4):
        member = SingleTaskGP(
            inputs[i],
            model.train_targets[i].unsqueeze(-1),
            train_Yvar=model.likelihood.noise[i].unsqueeze(-1),
            input_transform=Normalize(2, bounds=BOUNDS),
            outcome_transform=None,
        )
        member.covar_module.lengthscale = model.covar_module.lengthscale[i]
        single, value = StableOpt(member, domain, maximize=False).optimize()
        assert torch.equal(candidates[i], single)
        assert torch.allclose(values[i], value)


@pytest.mark.parametrize("kind", ["both", "theta"])
@pytest.mark.parametrize("maximize", [True, False])
def test_ensemble_averages_the_bounds_of_its_members(maximize, kind):
    domain = make_domain(kind)
    X = domain.sample(5, seed=1)
    model = BayesianGP(num_samples=3, num_steps=10)(X, X[:, :1].sin(), None, BOUNDS)
    acqf = StableOpt(model, domain, maximize=maximize)
    candidates, found = acqf.optimize()
    assert candidates.shape == (1, 2)
    assert found.shape == ()
    torch.testing.assert_close(acqf(candidates), found.unsqueeze(0))
    x = domain.x_choices
    if x is None:
        x = torch.cat([domain.sample_x(200, seed=0), candidates[:, :1]])
    points = domain.join(x.unsqueeze(-2), domain.theta_choices)
    with torch.no_grad():
        posterior = model.posterior(points.flatten(0, 1).unsqueeze(-2))
    mean = posterior.mean[..., 0, 0].mean(dim=-1).view(points.shape[:2])
    mean = -mean if maximize else mean
    # The average of deviations, which is not the deviation of the mixture.
    deviation = posterior.variance[..., 0, 0].sqrt().mean(dim=-1).view(points.shape[:2])
    value, i = (mean - 2.0 * deviation).amax(dim=-1).min(dim=0)
    j = (mean + 2.0 * deviation)[i].argmax()
    torch.testing.assert_close(-found, value)
    assert torch.equal(candidates[0], points[i, j])


def test_first_stage_as_an_acquisition_function():
    model, domain = make_model(1), make_domain("theta")
    acqf = StableOpt(model, domain, maximize=False)
    candidates, value = acqf.optimize()
    assert torch.allclose(acqf(candidates), value)
    others = acqf(domain.sample(100, seed=0).unsqueeze(-2))
    assert others.shape == (100,)
    assert (others <= value + 1e-8).all()
    with pytest.raises(UnsupportedError, match=r"got shape \(2, 3, 1, 2\)"):
        acqf(domain.sample(6, seed=0).view(2, 3, 1, 2))


def test_kernel_without_second_derivatives():
    X = RobustDomain(BOUNDS, [1]).sample(6, seed=0)
    model = SingleTaskGP(
        X,
        X[:, :1].sin(),
        covar_module=RQKernel(),
        input_transform=Normalize(2, bounds=BOUNDS),
    )
    domain = make_domain("box")
    _, value = brute_force(model, domain, beta=4.0, maximize=True, n=101)
    _, found = StableOpt(model, domain, maximize=True).optimize()
    assert value - 5e-3 <= float(found) <= value + 4e-2


def test_bad_beta():
    for beta in (-1.0, float("nan"), float("inf"), "4"):
        with pytest.raises(
            InputDataError, match=f"`beta` to be a number of at least 0, got {beta!r}"
        ):
            StableOpt(make_model(1), make_domain("box"), beta=beta)
