"""Samples and means of models with kernels of several terms and of categories."""

import math
import warnings

import pytest
import torch
from botorch.exceptions.errors import InputDataError
from botorch.models import MixedSingleTaskGP, MultiTaskGP, SingleTaskGP
from botorch.models.kernels import CategoricalKernel
from botorch.models.transforms import Normalize, Standardize
from gpytorch.kernels import (
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    RBFKernel,
    ScaleKernel,
)
from gpytorch.means import LinearMean

from botorch_res import RobustDomain
from botorch_res.models import DefaultGP, ExactGPView
from botorch_res.optim import robust_optimum, worst_case
from botorch_res.sampling import draw_fourier_samples, posterior_mean
from tests import problems
from tests.problems import DOUBLE, Draws

# Columns: a number, a category, a number, a category with numbers as codes.
BOUNDS = torch.tensor([[10.0, 0.0, -1.0, 0.0], [30.0, 2.0, 1.0, 4.0]], **DOUBLE)
X_CHOICES = {1: [0.0, 1.0, 2.0]}
DOMAIN = RobustDomain(BOUNDS, [3, 2], X_CHOICES, {3: [1.0, 2.0, 4.0]})
# For GPyTorch's noise of tasks, whose names must be their positions.
PLAIN = RobustDomain(BOUNDS, [3, 2], X_CHOICES, {3: [0.0, 1.0, 2.0]})
NUMBERS, CATEGORIES = [0, 2], [1, 3]


def domain_of(name):
    return PLAIN if name == "MultiTaskGP" else DOMAIN


def make_data(t=14, domain=DOMAIN):
    X = domain.sample(t, seed=3)
    unit = (X - BOUNDS[0]) / (BOUNDS[1] - BOUNDS[0])
    Y = 50 + 9 * (4 * unit[:, :1]).sin() * (1 + X[:, 1:2]) + X[:, 3:] * unit[:, 2:3]
    return X, Y


def single(X, Y, kernel, **options):
    transform = Normalize(4, indices=NUMBERS, bounds=BOUNDS[:, NUMBERS])
    kernel = kernel.double()
    for module in kernel.modules():
        if getattr(module, "has_lengthscale", False):
            module.lengthscale = 0.6
    scales = [m for m in kernel.modules() if isinstance(m, ScaleKernel)]
    for i, module in enumerate(scales):
        module.outputscale = 0.5 + 0.4 * i
    return SingleTaskGP(
        X, Y, covar_module=kernel, input_transform=transform, **options
    ).eval()


def category(*columns):
    return CategoricalKernel(ard_num_dims=len(columns), active_dims=list(columns))


def make_model(name, t=14):
    X, Y = make_data(t, domain_of(name))
    transform = Normalize(4, indices=NUMBERS, bounds=BOUNDS[:, NUMBERS])
    if name == "DefaultGP":
        return DefaultGP()(X, Y, None, BOUNDS, cat_dims=CATEGORIES)
    if name == "MixedSingleTaskGP":
        return MixedSingleTaskGP(X, Y, CATEGORIES, input_transform=transform).eval()
    if name.startswith("MultiTaskGP"):
        noise = torch.full_like(Y, 0.3) if name.endswith("known noise") else None
        options = {"train_Yvar": noise, "input_transform": transform}
        torch.manual_seed(0)
        task = 1 if name.endswith("of x") else 3
        model = MultiTaskGP(X, Y, task_feature=task, **options).eval()
        for i, base in enumerate(model.mean_module.base_means):
            base.initialize(constant=0.5 * i)
        if noise is None:
            model.likelihood.noise = torch.tensor([0.1, 0.2, 0.05])
        return model
    kernels = {
        "product": lambda: (
            ScaleKernel(RBFKernel(active_dims=NUMBERS)) * category(*CATEGORIES)
        ),
        "sum": lambda: (
            ScaleKernel(RBFKernel(active_dims=[0]))
            + ScaleKernel(MaternKernel(2.5, active_dims=[2, 1]))
        ),
        "sum of products": lambda: (
            ScaleKernel(
                MaternKernel(1.5, active_dims=[0]) * RBFKernel(active_dims=[2])
                + category(1)
            )
            + MaternKernel(2.5) * PeriodicKernel(active_dims=[3])
        ),
        "nested": lambda: (
            ScaleKernel(
                ScaleKernel(RBFKernel(active_dims=NUMBERS))
                + MaternKernel(2.5, active_dims=NUMBERS)
            )
            * ScaleKernel(category(*CATEGORIES))
        ),
        "singular": lambda: (
            ScaleKernel(RBFKernel(active_dims=NUMBERS)) * LinearKernel(active_dims=[3])
        ),
        "linear mean": lambda: RBFKernel(active_dims=NUMBERS) * category(1),
    }
    options = {}
    if name == "linear mean":
        options["mean_module"] = LinearMean(4).double()
    return single(X, Y, kernels[name](), **options)


MODELS = [
    "product",
    "sum",
    "sum of products",
    "nested",
    "singular",
    "linear mean",
    "DefaultGP",
    "MixedSingleTaskGP",
    "MultiTaskGP",
    "MultiTaskGP with known noise",
    "MultiTaskGP with a task of x",
]


def exact_moments(model, Z):
    """Mean and covariance of the noise-free function, by BoTorch."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # GPyTorch's sparse matrices of tasks
        posterior = model.posterior(Z)
        return posterior.mean.squeeze(-1), posterior.distribution.covariance_matrix


@pytest.mark.parametrize(
    ("name", "method"),
    [
        *((name, "matheron") for name in MODELS),
        ("product", "weight"),
        ("sum", "weight"),
    ],
)
def test_moments_equal_those_of_the_posterior(name, method):
    model, domain = make_model(name, 14 if method == "matheron" else 6), domain_of(name)
    Z = domain.sample(5, seed=8)
    mean, covariance = exact_moments(model, Z)
    spread = covariance.diagonal().sqrt()
    moments, num_seeds, num_samples = [], 40, 64
    for seed in range(num_seeds):
        samples = draw_fourier_samples(
            model, num_samples, 256, method=method, seed=seed, domain=domain
        )
        residual = (samples(Z) - mean) / spread
        second = residual.mT @ residual / num_samples
        second = second - covariance / spread / spread.unsqueeze(-1)
        moments.append(torch.cat([residual.mean(-2), second.flatten()]))
    moments = torch.stack(moments)
    error, sigma = moments.mean(0), moments.std(0) / math.sqrt(num_seeds)
    # Thirty scores, most of them independent: five is one in a hundred thousand.
    assert (error.abs() < 5.0 * sigma).all()
    assert (error / sigma).square().mean().sqrt() < 1.8


@pytest.mark.parametrize("name", MODELS)
def test_posterior_mean(name):
    model, domain = make_model(name), domain_of(name)
    Z = domain.sample(9, seed=8)
    mean, _ = exact_moments(model, Z)
    function = posterior_mean(model, domain)
    torch.testing.assert_close(function(Z), mean.unsqueeze(0), rtol=1e-7, atol=1e-7)
    assert function.lengthscale is not None
    free = torch.tensor(NUMBERS)
    found = function.derivatives(Z.unsqueeze(0), free)
    leaf = Z.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(posterior_mean(model)(leaf).sum(), leaf)
    torch.testing.assert_close(
        found.gradient[0], gradient[:, free], rtol=1e-6, atol=1e-6
    )


@pytest.mark.parametrize("name", MODELS)
def test_worst_cases_and_optima_against_brute_force(name):
    model, domain = make_model(name), domain_of(name)
    samples = draw_fourier_samples(model, 4, 128, seed=0, domain=domain)
    line = torch.linspace(0.0, 1.0, 81, **DOUBLE)
    numbers = [torch.lerp(*BOUNDS[:, i], line) for i in NUMBERS]
    settings = torch.cartesian_prod(numbers[0], domain.x.rows[:, 0])
    loads = torch.cartesian_prod(domain.theta.rows[:, 0], numbers[1])
    pairs = domain.join(settings.unsqueeze(1), loads)
    values = samples(pairs.flatten(0, 1)).unflatten(-1, pairs.shape[:2])
    spread = values.std()
    found = worst_case(samples, settings[::9], domain)
    at_found = samples(domain.join(settings[::9].expand(4, -1, -1), found.theta))
    torch.testing.assert_close(at_found, found.value, rtol=1e-8, atol=1e-8)
    error = (values[:, ::9].amax(-1) - found.value) / spread
    assert error.max() < 1e-3
    optimum = robust_optimum(samples, domain)
    error = (optimum.value - values.amax(-1).amin(-1)) / spread
    assert error.max() < 1e-3


def test_a_batch_of_models():
    X, Y = make_data()
    X, Y = torch.stack([X, X.flip(0)]), torch.stack([Y, Y.flip(0)])

    def make_kernel(outputscale):
        shape = torch.Size(outputscale.shape)
        kernel = ScaleKernel(
            RBFKernel(batch_shape=shape, active_dims=NUMBERS)
            * CategoricalKernel(batch_shape=shape, active_dims=CATEGORIES),
            batch_shape=shape,
        ).double()
        kernel.outputscale = outputscale
        return kernel

    scales = torch.tensor([0.5, 2.0], **DOUBLE)
    model = problems.make_model(X, Y, 0.1, make_kernel(scales)).eval()
    samples = draw_fourier_samples(model, 3, seed=[5, 5], domain=DOMAIN)
    Z = DOMAIN.sample(6, seed=1)
    for i in range(2):
        alone = problems.make_model(X[i], Y[i], 0.1, make_kernel(scales[i])).eval()
        expected = draw_fourier_samples(alone, 3, seed=5, domain=DOMAIN)(Z)
        torch.testing.assert_close(samples(Z)[:, i], expected, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("wrong", [3.0, 1.5, 5.0])
def test_unknown_tasks(wrong):
    model = make_model("MultiTaskGP with known noise")
    bounds = BOUNDS.clone()
    bounds[1, 3] = 5.0
    domain = RobustDomain(bounds, [3, 2], X_CHOICES, {3: [1.0, wrong]})
    message = rf"tasks of the model, \[1, 2, 4\], .* of column 3, got \[{wrong}\]"
    with pytest.raises(InputDataError, match=message):
        draw_fourier_samples(model, 3, seed=5, domain=domain)
    with pytest.raises(InputDataError, match=message):
        posterior_mean(model, domain)


def test_noise_of_tasks():
    view = ExactGPView(make_model("MultiTaskGP"))
    Z = PLAIN.sample(6, seed=1)
    noise = {0.0: 0.1, 1.0: 0.2, 2.0: 0.05}
    expected = torch.tensor([noise[v] for v in Z[:, 3].tolist()], **DOUBLE)
    torch.testing.assert_close(view.noise_at(Z), expected, rtol=1e-6, atol=0)


def test_a_finite_domain_with_a_singular_covariance():
    """A linear kernel has rank two, whatever the number of points."""
    bounds = torch.tensor([[0.0, -5.0], [1.0, 5.0]], **DOUBLE)
    draws = Draws(0)
    domain = RobustDomain(bounds, [0], 5 * draws.uniform(7, 1), draws.uniform(6, 1))
    X = domain.all_pairs().flatten(0, 1)[:5]
    Y = 30 + 4 * X.sum(-1, keepdim=True)
    kernel = ScaleKernel(LinearKernel()).double()
    model = SingleTaskGP(
        X,
        Y,
        torch.full_like(Y, 1e-4),
        covar_module=kernel,
        outcome_transform=Standardize(1),
    ).eval()
    samples = draw_fourier_samples(model, 4000, seed=0, domain=domain)
    Z = domain.all_pairs().flatten(0, 1)[::3]
    mean, covariance = exact_moments(model, Z)
    spread = covariance.diagonal().sqrt()
    values = samples(Z)
    assert ((values.mean(0) - mean) / spread).abs().max() < 5 / math.sqrt(4000)
    assert (values.std(0) / spread - 1).abs().max() < 0.06
    table = samples(domain.all_pairs().flatten(0, 1)).unflatten(-1, (7, 6))
    optimum = robust_optimum(samples, domain)
    torch.testing.assert_close(optimum.value, table.amax(-1).amin(-1))
