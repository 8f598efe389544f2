"""Random GP posteriors on the unit cube, and their samples."""

from __future__ import annotations

import torch
from botorch.models import SingleTaskGP
from gpytorch.kernels import MaternKernel, RBFKernel
from torch import Tensor

from botorch_res.domain import RobustDomain
from botorch_res.sampling import BatchFunction, draw_fourier_samples

NUM_SAMPLES = 16
NOISE_VARIANCE = 1e-4


def random_model(
    dim: int, seed: int, kernel: str = "rbf", t: int | None = None
) -> SingleTaskGP:
    """A GP with random lengthscales and data that follow it.

    Args:
        dim: The number of columns.
        seed: The seed.
        kernel: ``"rbf"``, or Matern's ``nu``.
        t: The number of observations; log-uniform from 1 to 100 if ``None``.

    Returns:
        The model, with signal variance 1 and lengthscales log-uniform from 0.05 to 1.
    """
    generator = torch.Generator().manual_seed(seed)
    uniform = torch.rand(1 + dim, generator=generator, dtype=torch.double)
    t = round(100 ** uniform[0].item()) if t is None else t
    X = torch.rand(t, dim, generator=generator, dtype=torch.double)
    module = (
        RBFKernel(ard_num_dims=dim)
        if kernel == "rbf"
        else MaternKernel(float(kernel), ard_num_dims=dim)
    ).double()
    module.lengthscale = 0.05 * 20.0 ** uniform[1:].unsqueeze(0)
    with torch.no_grad():
        noise = NOISE_VARIANCE * torch.eye(t, dtype=torch.double)
        normal = torch.randn(t, 1, generator=generator, dtype=torch.double)
        Y = torch.linalg.cholesky(module(X).to_dense() + noise) @ normal
    Yvar = torch.full_like(Y, NOISE_VARIANCE)
    model = SingleTaskGP(X, Y, Yvar, covar_module=module, outcome_transform=None)
    model.mean_module.constant.data.zero_()
    return model.eval()


def unit_domain(
    x_dim: int, theta_dim: int, thetas: Tensor | None = None
) -> RobustDomain:
    """The unit cube, the last columns uncontrollable.

    Args:
        x_dim: The number of controllable columns.
        theta_dim: The number of uncontrollable columns.
        thetas: The choices of theta, if it is finite.

    Returns:
        The domain.
    """
    bounds = torch.zeros(2, x_dim + theta_dim, dtype=torch.double)
    bounds[1] = 1.0
    columns = range(x_dim, x_dim + theta_dim)
    return RobustDomain(bounds, list(columns), theta_choices=thetas)


def robust_case(
    x_dim: int, theta_dim: int, finite: bool, seed: int
) -> tuple[BatchFunction, RobustDomain]:
    """A random problem for the robust optimum.

    Args:
        x_dim: The number of controllable columns.
        theta_dim: The number of uncontrollable columns.
        finite: Whether theta has 2 to 20 choices, or a box.
        seed: The seed.

    Returns:
        Samples of the posterior of a random model, and the domain.
    """
    model = random_model(x_dim + theta_dim, seed)
    samples = draw_fourier_samples(model, NUM_SAMPLES, seed=seed)
    thetas = None
    if finite:
        generator = torch.Generator().manual_seed(seed)
        thetas = torch.rand(
            2 + seed % 19, theta_dim, generator=generator, dtype=torch.double
        )
    return samples, unit_domain(x_dim, theta_dim, thetas)
