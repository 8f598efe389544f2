"""Random numbers, domains, kernels and models that the tests share."""

from __future__ import annotations

import math

import torch
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from botorch.settings import validate_input_scaling
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from gpytorch.means import Mean
from torch import Tensor

from botorch_res import RobustDomain
from botorch_res.sampling import draw_fourier_samples

DOUBLE = {"dtype": torch.double}
# The two units of most problems with one x and one theta.
UNIT = torch.tensor([[0.0, 0.0], [1.0, 1.0]], **DOUBLE)
RAW = torch.tensor([[-5.0, 100.0], [10.0, 300.0]], **DOUBLE)
# Which parts of a domain are finite.
FINITE_PARTS = {"box": (), "theta": ("theta",), "x": ("x",), "both": ("x", "theta")}
KINDS = tuple(FINITE_PARTS)


class Draws:
    """Numbers in double precision, one after the other from a seed."""

    def __init__(self, seed: int = 0) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def uniform(self, *shape: int) -> Tensor:
        return torch.rand(*shape, generator=self.generator, **DOUBLE)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator, **DOUBLE)

    def permutation(self, n: int) -> Tensor:
        return torch.randperm(n, generator=self.generator)


def line(n: int, lower: float = 0.0, upper: float = 1.0) -> Tensor:
    """``n x 1`` points at equal distances."""
    return torch.linspace(lower, upper, n, **DOUBLE).unsqueeze(-1)


def unit_domain(x_dim: int = 1, theta_dim: int = 1, **choices: Tensor) -> RobustDomain:
    """A domain on the unit cube, the columns of theta last."""
    columns = list(range(x_dim, x_dim + theta_dim))
    bounds = line(2).repeat(1, x_dim + theta_dim)
    return RobustDomain(bounds, columns, **choices)


def sloppy_domain(
    x_dim: int, theta_dim: int, num_tolerances: int, **choices: Tensor
) -> RobustDomain:
    """The unit cube, with tolerances of its first columns, of different widths."""
    dim = x_dim + theta_dim
    tolerances = {0: 0.1, 1: (-0.05, 0.2), 2: 0.15}
    return RobustDomain(
        line(2).repeat(1, dim),
        list(range(x_dim, dim)),
        tolerances={i: tolerances[i] for i in range(num_tolerances)},
        **choices,
    )


def make_domain(
    kind: str = "box", bounds: Tensor = UNIT, choices: Tensor | None = None
) -> RobustDomain:
    """A domain of one x and one theta, of one of the four kinds.

    The choices of the finite parts are the columns of ``n x 1`` or ``n x 2`` points of
    the unit square, by default six at equal distances.
    """
    points = torch.lerp(*bounds, line(6) if choices is None else choices)
    columns = dict(zip(("x", "theta"), points.split(1, dim=-1), strict=True))
    finite = {f"{part}_choices": columns[part] for part in FINITE_PARTS[kind]}
    return RobustDomain(bounds, [1], **finite)


def standardized(Y: Tensor) -> Tensor:
    """Values ``... x t x 1`` of mean zero and variance one."""
    return (Y - Y.mean(-2, keepdim=True)) / Y.std(-2, keepdim=True)


def make_kernel(
    nu: float | None = None,
    lengthscale: float | Tensor | None = None,
    outputscale: float | None = None,
    dim: int | None = 2,
    batch: tuple[int, ...] = (),
) -> Kernel:
    """A Matern kernel or, without ``nu``, an RBF kernel; scaled if asked."""
    options = {"ard_num_dims": dim, "batch_shape": torch.Size(batch)}
    smooth = nu is None or math.isinf(nu)
    kernel = RBFKernel(**options) if smooth else MaternKernel(nu, **options)
    kernel = kernel.double()
    if lengthscale is not None:
        kernel.lengthscale = lengthscale
    if outputscale is None:
        return kernel
    kernel = ScaleKernel(kernel, batch_shape=torch.Size(batch)).double()
    kernel.outputscale = outputscale
    return kernel


def make_model(
    X: Tensor,
    Y: Tensor,
    noise: float | Tensor | None = None,
    kernel: Kernel | None = None,
    bounds: Tensor | None = None,
    **options: object,
) -> SingleTaskGP:
    """A GP, in the model's own space unless bounds tell the units of the inputs.

    The variance of the noise, if it is known, is common or that of each observation.
    With bounds, inputs are normalised and values are standardised.
    """
    if bounds is not None:
        batch = X.shape[:-2]
        options.setdefault("input_transform", Normalize(X.shape[-1], bounds=bounds))
        options.setdefault("outcome_transform", Standardize(1, batch_shape=batch))
    options.setdefault("outcome_transform", None)
    if isinstance(noise, float):
        noise = torch.full_like(Y, noise)
    # Data of any scale are wanted here.
    with validate_input_scaling(False):
        return SingleTaskGP(X, Y, noise, covar_module=kernel, **options)


def random_samples(
    dim: int,
    seed: int,
    nu: float | None = None,
    num_samples: int = 8,
    bounds: Tensor | None = None,
    num_features: int = 512,
) -> tuple[object, SingleTaskGP]:
    """Samples of a random posterior: lengthscales 0.05 to 1, 1 to 100 observations."""
    generator = torch.Generator().manual_seed(seed)
    uniform = torch.rand(1 + dim, generator=generator, **DOUBLE)
    X = torch.rand(round(100 ** uniform[0].item()), dim, generator=generator).double()
    scale = 0.05 * 20 ** (uniform[1:] if nu is None else uniform[1])
    kernel = make_kernel(nu, scale, dim=dim if nu is None else None)
    covariance = kernel(X).to_dense().detach() + 1e-4 * torch.eye(len(X), **DOUBLE)
    white = torch.randn(len(X), 1, generator=generator).double()
    Y = torch.linalg.cholesky(covariance) @ white
    X = X if bounds is None else torch.lerp(*bounds, X)
    model = make_model(X, Y, 1e-4, kernel, bounds, outcome_transform=None)
    return draw_fourier_samples(model, num_samples, num_features, seed=seed), model


class QuadraticMean(Mean):
    """A prior mean that is neither constant nor linear."""

    def __init__(self, batch_shape: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.size = torch.nn.Parameter(torch.full((*batch_shape, 1), 0.5, **DOUBLE))

    def forward(self, x: Tensor) -> Tensor:
        return self.size * x.square().sum(dim=-1)
