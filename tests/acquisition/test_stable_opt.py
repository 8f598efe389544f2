import pytest
import torch
from botorch.exceptions.errors import InputDataError, UnsupportedError
from botorch.models import SingleTaskGP
from gpytorch.kernels import RQKernel
from torch import Tensor

from botorch_res import RobustDomain
from botorch_res.acquisition.stable_opt import StableOpt
from botorch_res.models import BayesianGP
from tests import problems
from tests.brute_force import pairs
from tests.problems import DOUBLE, Draws, line, make_kernel, unit_domain
from tests.problems import RAW as BOUNDS


def make_domain(kind: str, seed: int = 0) -> RobustDomain:
    return problems.make_domain(kind, BOUNDS, unit_domain().sample(9, seed=seed))


def make_model(seed: int, *batch: int) -> SingleTaskGP:
    draws = Draws(seed)
    t = int(torch.randint(1, 12, (), generator=draws.generator))
    X = torch.lerp(*BOUNDS, draws.uniform(*batch, t, 2))
    Y = 7.0 + 3.0 * draws.normal(*batch, t, 1)
    scale = 0.15 + 0.5 * draws.uniform(*batch, 1, 2)
    kernel = make_kernel(lengthscale=scale, batch=batch)
    return problems.make_model(X, Y, 1e-2, kernel, BOUNDS, outcome_transform=None)


@torch.no_grad()
def brute_force(
    model: SingleTaskGP, domain: RobustDomain, beta: float, maximize: bool, n: int = 201
) -> tuple[Tensor, Tensor]:
    """The rule on a grid, from BoTorch's posterior, averaged over an ensemble."""
    points = pairs(domain, n, n)
    posterior = model.posterior(points.flatten(0, 1).unsqueeze(-2))
    moments = posterior.mean, posterior.variance.sqrt()
    # The average of deviations, which is not the deviation of the mixture.
    mean, deviation = (part.view(*points.shape[:2], -1).mean(-1) for part in moments)
    mean, deviation = -mean if maximize else mean, beta**0.5 * deviation
    value, i = (mean - deviation).amax(dim=-1).min(dim=0)
    j = (mean + deviation)[i].argmax()
    return points[i, j], -value


@pytest.mark.parametrize("maximize", [True, False])
def test_equals_brute_force_on_finite_domains(maximize):
    for seed in range(50):
        model, domain = make_model(seed), make_domain("both", seed)
        beta = (1.0, 4.0, 16.0)[seed % 3]
        expected, value = brute_force(model, domain, beta, maximize)
        candidates, found = StableOpt(model, domain, beta, maximize).optimize()
        assert torch.equal(candidates, expected.unsqueeze(0))
        assert float(found) == pytest.approx(float(value), rel=1e-6, abs=1e-6)


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
    points = pairs(domain, 101, 101)
    fine_theta = domain.theta.choices
    if fine_theta is None:
        fine_theta = line(4001, 100.0, 300.0)
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
        others = bounds_at(points)[0].amax(dim=-1)
        assert -float(found[i]) <= float(others.min()) + 1.3e-2
        if kind == "x":
            assert torch.equal(candidate[0, :1], domain.x.choices[others.argmin()])
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
        member = problems.make_model(
            inputs[i],
            model.train_targets[i].unsqueeze(-1),
            model.likelihood.noise[i].unsqueeze(-1),
            make_kernel(lengthscale=model.covar_module.lengthscale[i].detach()),
            BOUNDS,
            outcome_transform=None,
        )
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
    if kind == "theta":
        x = torch.cat([domain.x.sample(200, seed=0), candidates[:, :1]])
        domain = RobustDomain(BOUNDS, [1], x, domain.theta.choices)
    expected, value = brute_force(model, domain, 4.0, maximize)
    torch.testing.assert_close(found, value)
    assert torch.equal(candidates[0], expected)


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
    domain = make_domain("box")
    X = domain.sample(6, seed=0)
    model = problems.make_model(X, X[:, :1].sin(), kernel=RQKernel(), bounds=BOUNDS)
    _, value = brute_force(model, domain, beta=4.0, maximize=True, n=101)
    _, found = StableOpt(model, domain, maximize=True).optimize()
    assert value - 5e-3 <= found <= value + 4e-2


def test_bad_beta():
    for beta in (-1.0, float("nan"), float("inf"), "4"):
        with pytest.raises(
            InputDataError,
            match=f"`beta` to be a finite number of at least 0.0, got {beta!r}",
        ):
            StableOpt(make_model(1), make_domain("box"), beta=beta)
