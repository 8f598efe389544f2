import math

import pytest
import torch
from botorch.exceptions.errors import (
    BotorchTensorDimensionError,
    InputDataError,
    UnsupportedError,
)
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.models.transforms.input import ChainedInputTransform, Log10, Warp
from gpytorch.kernels import PeriodicKernel, RBFKernel, ScaleKernel
from gpytorch.means import ZeroMean

from botorch_res.models import ExactGPView
from botorch_res.sampling import draw_fourier_samples
from botorch_res.seeding import seeded
from tests import problems
from tests.problems import (
    RAW,
    UNIT,
    Draws,
    QuadraticMean,
    make_domain,
    make_kernel,
    standardized,
    unit_domain,
)


def make_model(t=10, kernel=None, noise=1e-3, batch=(), **options):
    X = Draws(0).uniform(*batch, t, 2)
    Y = (5 * X).sin().sum(-1, keepdim=True)
    if kernel is None:
        scale = torch.tensor([0.2, 0.4], dtype=torch.double)
        kernel = make_kernel(lengthscale=scale, batch=batch)
    Y = standardized(Y) if t > 1 else Y
    return problems.make_model(X, Y, noise, kernel, **options).eval()


def matern(nu):
    scale = torch.tensor([0.3, 0.6], dtype=torch.double)
    return make_kernel(nu, scale, outputscale=2.0)


def statistics(model, Z, method="matheron", num_seeds=48, num_samples=64):
    """Deviation of means and covariances from the posterior in standard errors.

    Frequencies are drawn anew with each seed: only the average over them is exact.
    """
    with torch.no_grad():
        posterior = model.posterior(Z)
        mean = posterior.mean.squeeze(-1)
        covariance = posterior.distribution.covariance_matrix
    moments = []
    for seed in range(num_seeds):
        samples = draw_fourier_samples(model, num_samples, method=method, seed=seed)
        residual = samples(Z).movedim(0, -2) - mean.unsqueeze(-2)
        second = residual.mT @ residual / num_samples - covariance
        moments.append(torch.cat([residual.mean(-2), second.flatten(-2)], -1))
    moments = torch.stack(moments)
    return moments.mean(0) / (moments.std(0) / math.sqrt(num_seeds))


def assert_moments_agree(scores):
    # Thirty scores, most of them independent: five is one in a hundred thousand.
    assert scores.abs().max() < 5.0
    assert scores.square().mean().sqrt() < 1.8


@pytest.mark.parametrize(
    ("method", "t", "kernel"),
    [
        ("matheron", 1, None),
        ("matheron", 10, None),
        ("matheron", 100, None),
        ("matheron", 500, None),
        ("matheron", 500, matern(2.5)),
        ("matheron", 30, matern(1.5)),
        ("matheron", 30, matern(0.5)),
        ("weight", 1, None),
        ("weight", 6, None),
        ("weight", 6, matern(2.5)),
    ],
)
def test_moments_equal_those_of_the_posterior(method, t, kernel):
    Z = Draws(1).uniform(5, 2)
    assert_moments_agree(statistics(make_model(t, kernel), Z, method))


@pytest.mark.parametrize("method", ["matheron", "weight"])
@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize("noise", [None, "by observation"])
def test_moments_in_the_units_of_the_user(method, batch, noise):
    draws = Draws(2)
    unit = draws.uniform(*batch, 7, 2)
    Y = 40 * (6 * unit).sin().sum(-1, keepdim=True) - 700
    Yvar = None if noise is None else 1.0 + 300 * unit[..., :1]
    spread = draws.uniform(*batch, 1, 2)
    kernel = make_kernel(None, 0.2 + 0.5 * spread, 0.5 + spread[..., 0, 0], batch=batch)
    X = torch.lerp(*RAW, unit)
    model = problems.make_model(X, Y, Yvar, kernel, RAW).eval()
    Z = torch.lerp(*RAW, draws.uniform(4, 2))
    scores = statistics(model, Z, method)
    assert scores.shape == (*batch, 20)
    assert_moments_agree(scores)


def test_moments_behind_a_transform_that_is_not_affine():
    model = make_model(8, input_transform=Log10([0]))
    Z = torch.rand(4, 2, dtype=torch.double)
    assert_moments_agree(statistics(model, Z))


@pytest.mark.parametrize(("nu", "most"), [(math.inf, 0.06), (2.5, 0.4)])
def test_one_set_of_frequencies_is_enough(nu, most):
    """The variance of many samples that share their frequencies, with many data.

    Frequencies of the kernel's own density leave the variance of RBF and of Matern
    samples off by about 12 % and 70 % here.
    """
    model = make_model(200, make_kernel(nu, 0.2, dim=None), noise=1e-4)
    Z = torch.rand(20, 2, dtype=torch.double)
    exact = model.posterior(Z).variance.squeeze(-1).detach()
    errors = [
        draw_fourier_samples(model, 4000, seed=seed)(Z).var(0) / exact - 1
        for seed in range(2)
    ]
    assert torch.stack(errors).square().mean().sqrt() < most


def test_weight_space_equals_the_bayesian_linear_model():
    model = make_model(8, noise=0.05)
    samples = draw_fourier_samples(model, 20000, 20, method="weight", seed=3)
    view = ExactGPView(model)

    # The variance of a feature is the ratio of the density of the kernel's spectrum and
    # that of the frequencies, half of which are stretched by two.
    wide = (0.375 * samples.frequencies.square().sum(-1)).exp() / 4
    amplitude = (0.2 / (1 + wide)).sqrt()

    def features(z):
        phase = samples.scaled(z) @ samples.frequencies.mT
        return torch.cat([amplitude * phase.cos(), amplitude * phase.sin()], -1)

    # The textbook's way: the F x F matrix that the package never forms.
    Phi = features(view.original_inputs)
    A = Phi.mT @ Phi / 0.05 + torch.eye(20, dtype=torch.double)
    Z = torch.rand(4, 2, dtype=torch.double)
    constant = model.mean_module.constant.item()
    weights = torch.linalg.solve(A, Phi.mT @ (view.train_targets - constant) / 0.05)
    mean = constant + features(Z) @ weights
    covariance = features(Z) @ torch.linalg.solve(A, features(Z).mT)
    values = samples(Z)
    error = covariance.diagonal().sqrt() / math.sqrt(20000)
    assert ((values.mean(0) - mean).abs() < 5 * error).all()
    torch.testing.assert_close(values.mT.cov(), covariance, rtol=0.1, atol=3e-3)


@pytest.mark.parametrize("method", ["matheron", "weight"])
def test_samples_pass_near_the_data(method):
    model = make_model(12, noise=1e-6)
    samples = draw_fourier_samples(model, 32, method=method, seed=0)
    deviation = samples(model.train_inputs[0]) - model.train_targets
    assert deviation.abs().max() < 6e-3  # six standard deviations of the noise


def test_noise_of_each_observation():
    X = torch.rand(6, 2, dtype=torch.double)
    noise = torch.tensor([1e-6] * 3 + [4.0] * 3, dtype=torch.double).unsqueeze(-1)
    model = problems.make_model(X, standardized(X.sum(-1, keepdim=True)), noise)
    samples = draw_fourier_samples(model, 400, seed=0)
    spread = samples(X).std(0)
    exact = model.posterior(X).variance.sqrt().squeeze(-1).detach()
    torch.testing.assert_close(spread[:3], exact[:3], rtol=0.2, atol=1e-3)
    torch.testing.assert_close(spread[3:], exact[3:], rtol=0.2, atol=0.0)


@pytest.mark.parametrize("method", ["matheron", "weight"])
def test_seeds(method):
    model = make_model()
    Z = torch.rand(3, 2, dtype=torch.double)
    state = torch.get_rng_state()
    first = draw_fourier_samples(model, 4, method=method, seed=5)(Z)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(draw_fourier_samples(model, 4, method=method, seed=5)(Z), first)
    assert not torch.equal(
        draw_fourier_samples(model, 4, method=method, seed=6)(Z), first
    )
    with seeded(0):
        unseeded = draw_fourier_samples(model, 4, method=method)(Z)
        assert not torch.equal(
            draw_fourier_samples(model, 4, method=method)(Z), unseeded
        )
    with seeded(0):
        assert torch.equal(draw_fourier_samples(model, 4, method=method)(Z), unseeded)


@pytest.mark.parametrize("method", ["matheron", "weight"])
@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize("nu", [math.inf, 2.5, 0.5])
def test_order_of_columns(nu, batch, method):
    """Permuted data and lengthscales: the same functions of the permuted columns."""
    draws = Draws(4)
    X, Y = draws.uniform(*batch, 7, 4), standardized(draws.normal(*batch, 7, 1))
    scale, Z = 0.2 + draws.uniform(*batch, 1, 4), draws.uniform(9, 4)
    values = []
    for _ in range(5):
        order = draws.permutation(4)
        kernel = make_kernel(nu, scale[..., order], dim=4, batch=batch)
        model = problems.make_model(X[..., order], Y, 1e-3, kernel)
        samples = draw_fourier_samples(model, 3, method=method, seed=1)
        values.append(samples(Z[..., order]))
    for other in values[1:]:
        torch.testing.assert_close(other, values[0], rtol=0.0, atol=1e-9)


@pytest.mark.parametrize("noise", [None, 1e-3])
@pytest.mark.parametrize("nu", [None, 2.5])
def test_units_of_the_user(noise, nu):
    """Raw data with transforms, and the same data transformed by hand."""
    unit = Draws(0).uniform(8, 2)
    Y = unit.sin().sum(-1, keepdim=True) * 40 - 7
    kernel = make_kernel(lengthscale=0.3) if nu is None else matern(nu)
    raw_noise = None if noise is None else noise * float(Y.var())
    raw = problems.make_model(torch.lerp(*RAW, unit), Y, raw_noise, kernel, RAW)
    plain = problems.make_model(unit, standardized(Y), noise, kernel)
    Z = torch.rand(6, 2, dtype=torch.double)
    ours = draw_fourier_samples(raw, 3, seed=0)
    theirs = draw_fourier_samples(plain, 3, seed=0)
    z = torch.lerp(*RAW, Z).expand(3, -1, -1)
    torch.testing.assert_close(ours(z), Y.mean() + Y.std() * theirs(Z))
    columns = torch.tensor([1])
    gradient = theirs.derivatives(Z.expand(3, -1, -1), columns).gradient
    torch.testing.assert_close(
        ours.derivatives(z, columns).gradient, Y.std() * gradient / 200.0
    )
    width = RAW[1] - RAW[0]
    torch.testing.assert_close(ours.lengthscale, theirs.lengthscale * width)


def test_other_input_transforms():
    chain = ChainedInputTransform(
        first=Normalize(2, bounds=UNIT), second=Normalize(2, bounds=UNIT * 2)
    )
    assert draw_fourier_samples(make_model(input_transform=chain), 2).slope is not None
    for transform in (
        Log10([0]),
        Warp(d=2, indices=[0], concentration1_prior=None, bounds=UNIT),
    ):
        model = make_model(input_transform=transform, noise=1e-6)
        samples = draw_fourier_samples(model, 3, seed=0)
        assert samples.slope is None
        X = ExactGPView(model).original_inputs
        targets = ExactGPView(model).train_targets
        assert (samples(X) - targets).abs().max() < 1e-2


def test_batches_of_models():
    model = make_model(7, batch=(3,))
    with torch.no_grad():
        model.covar_module.lengthscale = torch.rand(3, 1, 2) + 0.2
    samples = draw_fourier_samples(model, 6, seed=0)
    assert samples.sample_shape == (6, 3)
    Z = torch.rand(4, 2, dtype=torch.double)
    values = samples(Z)
    torch.testing.assert_close(samples(Z.expand(6, 3, 4, 2)), values)
    # Every function by itself, from the tables of its own model.
    for i in range(3):
        u = Z / model.covar_module.lengthscale[i] - samples.shift[i]
        phase = u @ samples.frequencies[i].mT
        kernel = (-0.5 * torch.cdist(u, samples.centers[i]).square()).exp()
        expected = samples.offset[:, i, None] + (
            samples.cosines[:, i] @ phase.cos().mT
            + samples.sines[:, i] @ phase.sin().mT
            + samples.kernel_weights[:, i] @ kernel.mT
        )
        torch.testing.assert_close(values[:, i], expected)
        near = samples(model.train_inputs[0][i])[:, i] - model.train_targets[i]
        assert near.abs().max() < 6 * math.sqrt(1e-3)


def test_zero_mean_and_single_precision():
    model = make_model(5, noise=1e-3, mean_module=ZeroMean()).float()
    samples = draw_fourier_samples(model, 3, seed=0)
    values = samples(model.train_inputs[0])
    assert values.dtype == torch.float
    assert (values - model.train_targets).abs().max() < 0.2


def test_kernels_without_features():
    model = make_model(kernel=ScaleKernel(PeriodicKernel()))
    name = r"ScaleKernel\(PeriodicKernel\)"
    with pytest.raises(
        UnsupportedError, match=rf"{name} has no Fourier .* \[0, 1\]\. U"
    ):
        draw_fourier_samples(model, 2)
    with pytest.raises(UnsupportedError, match="pass a `domain` that lists the values"):
        draw_fourier_samples(model, 2, domain=unit_domain())
    partly = make_domain("theta", UNIT)
    with pytest.raises(UnsupportedError, match=r"features in the columns \[0\]\. Use"):
        draw_fourier_samples(model, 2, domain=partly)
    some = make_model(kernel=RBFKernel() + PeriodicKernel(active_dims=[1]))
    assert draw_fourier_samples(some, 2, domain=partly).sample_shape == (2,)
    with pytest.raises(UnsupportedError, match=r"PeriodicKernel of the columns \[1\]"):
        draw_fourier_samples(some, 2, domain=make_domain("x", UNIT))


@pytest.mark.parametrize(
    ("error", "message", "kwargs"),
    [
        (InputDataError, "`num_samples` to be .* least 1, got 0", {"num_samples": 0}),
        (InputDataError, "least 1, got 2.5", {"num_samples": 2.5}),
        (InputDataError, "least 1, got None", {"num_samples": None}),
        (InputDataError, "least 1, got True", {"num_samples": True}),
        (InputDataError, "positive even number, got 3", {"num_features": 3}),
        (InputDataError, "positive even number, got 0", {"num_features": 0}),
        (InputDataError, "positive even number, got 8.0", {"num_features": 8.0}),
        (InputDataError, "`seed` to be None or a whole .*, got 0.5", {"seed": 0.5}),
        (InputDataError, "'matheron' or 'weight', got 'other'", {"method": "other"}),
        (
            BotorchTensorDimensionError,
            "`domain` with 2 columns, as many as the inputs of the model have, got 3",
            {"domain": unit_domain(2, 1)},
        ),
    ],
)
def test_wrong_arguments(error, message, kwargs):
    with pytest.raises(error, match=message):
        draw_fourier_samples(make_model(), **{"num_samples": 2, **kwargs})


def test_unsupported_models():
    with pytest.raises(UnsupportedError, match="LinearMean, got QuadraticMean"):
        draw_fourier_samples(make_model(mean_module=QuadraticMean()), 2)
    X = torch.rand(4, 2, dtype=torch.double)
    several = SingleTaskGP(X, torch.rand(4, 2, dtype=torch.double))
    with pytest.raises(UnsupportedError, match="single-output"):
        draw_fourier_samples(several, 2)
    with pytest.raises(InputDataError, match="training data, but SingleTaskGP has non"):
        draw_fourier_samples(make_model(t=0), 2)
    broken = make_model()
    broken.train_targets[0] = math.nan
    with pytest.raises(InputDataError, match="`train_targets` to be finite"):
        draw_fourier_samples(broken, 2)
