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
    x = x if domain.x.choices is None else domain.x.choices
    theta = theta if domain.theta.choices is None else domain.theta.choices
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


def moments(
    X: Tensor, y: Tensor, lengthscale: Tensor, points: Tensor
) -> tuple[Tensor, Tensor]:
    """Mean and deviation at ``... x 2`` points, by the textbook, with zero prior mean.

    ``make_model`` leaves the prior mean at zero and the signal's variance at one.
    """
    scale = (BOUNDS[1] - BOUNDS[0]) * lengthscale

    def kernel(a: Tensor, b: Tensor) -> Tensor:
        distance = (a.unsqueeze(-2) - b) / scale
        return (-distance.square().sum(dim=-1) / 2).exp()

    cross = kernel(points, X)
    noise = 1e-2 * torch.eye(len(X), **DOUBLE)
    gain = cross @ torch.linalg.inv(kernel(X, X) + noise)
    return gain @ y, (1 - (gain * cross).sum(dim=-1)).sqrt()


@pytest.mark.parametrize("kind", ["box", "theta", "x"])
@pytest.mark.parametrize("seed", range(5))
def test_equals_brute_force_on_other_domains(seed, kind):
    """Ten models at once; with all seeds, 50 for each kind of domain."""
    model, domain = make_model(seed, 10), make_domain(kind, seed)
    beta, maximize = (1.0, 4.0, 16.0)[seed % 3], seed % 2 == 0
    (inputs,), targets = model.train_inputs, model.train_targets
    lengthscale = model.covar_module.lengthscale.detach()
    candidates, found = StableOpt(model, domain, beta, maximize).optimize()
    x, theta, fine_theta = (
        torch.linspace(*bounds, n, **DOUBLE).unsqueeze(-1)
        for bounds, n in (((-5, 10), 101), ((100, 300), 101), ((100, 300), 4001))
    )
    if domain.x.choices is not None:
        x = domain.x.choices
    if domain.theta.choices is not None:
        theta = fine_theta = domain.theta.choices
    for i, candidate in enumerate(candidates):

        def bounds_at(points: Tensor, i: int = i) -> tuple[Tensor, Tensor]:
            mean, deviation = moments(inputs[i], targets[i], lengthscale[i], points)
            mean, deviation = -mean if maximize else mean, beta**0.5 * deviation
            return mean - deviation, mean + deviation

        # The first stage: the value is that of the x, and no x of a grid has a better
        # one. Curvatures are up to about 1000 per box: among 101 thetas a maximum may
        # be missed by 1000 / 8 / 100^2.
        lower, upper = bounds_at(domain.join(candidate[:, :1], fine_theta))
        assert -float(found[i]) == pytest.approx(float(lower.max()), abs=1e-4)
        others = bounds_at(domain.join(x.unsqueeze(-2), theta))[0].amax(dim=-1)
        assert -float(found[i]) <= float(others.min()) + 1.3e-2
        if kind == "x":
            assert torch.equal(candidate[0, :1], x[others.argmin()])
        # The second stage: no theta has a higher upper bound at that x.
        chosen = bounds_at(candidate)[1]
        assert float(chosen) == pytest.approx(float(upper.max()), abs=1e-4)


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
    x = domain.x.choices
    if x is None:
        x = torch.cat([domain.x.sample(200, seed=0), candidates[:, :1]])
    points = domain.join(x.unsqueeze(-2), domain.theta.choices)
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
            InputDataError,
            match=f"`beta` to be a finite number of at least 0.0, got {beta!r}",
        ):
            StableOpt(make_model(1), make_domain("box"), beta=beta)
