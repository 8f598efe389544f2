import math

import pytest
import torch
from botorch.exceptions.errors import InputDataError, UnsupportedError
from botorch.models.transforms import Standardize
from gpytorch.kernels import PeriodicKernel, ScaleKernel

from botorch_res import RobustDomain
from botorch_res.models import ExactGPView
from botorch_res.optim import robust_optimum, worst_case
from botorch_res.sampling import draw_fourier_samples, grid_samples
from tests import problems
from tests.problems import Draws

DRAWS = Draws(0)
DOMAIN = RobustDomain(
    torch.tensor([[0.0, -5.0], [1.0, 5.0]], dtype=torch.double),
    uncontrollable=[0],
    x_choices=DRAWS.uniform(3, 1),
    theta_choices=DRAWS.uniform(4, 1),
)


def make_model():
    X = DRAWS.uniform(5, 2)
    Y, kernel = 30 + 4 * X.sum(-1, keepdim=True), ScaleKernel(PeriodicKernel())
    return problems.make_model(X, Y, 0.1, kernel, outcome_transform=Standardize(1))


def test_moments_equal_those_of_the_posterior():
    model = make_model()
    samples = draw_fourier_samples(model, 20000, seed=0, domain=DOMAIN)
    points = DOMAIN.all_pairs().flatten(0, 1)
    values = samples(points)
    view = ExactGPView(model)
    with torch.no_grad():
        mean, covariance = view.joint_posterior(view.transform_inputs(points))
    covariance = view.outcome_scale**2 * covariance
    spread = covariance.diagonal().sqrt()
    error = (values.mean(0) - view.untransform_outcomes(mean)) / spread
    assert error.abs().max() < 5 / math.sqrt(20000)
    scaled = (values.mT.cov() - covariance) / torch.outer(spread, spread)
    assert scaled.abs().max() < 0.05


def test_tables_and_optimisers():
    samples = draw_fourier_samples(make_model(), 6, seed=0, domain=DOMAIN)
    assert samples.num_samples == 6
    table = samples(DOMAIN.all_pairs().flatten(0, 1)).reshape(6, 3, 4)
    torch.testing.assert_close(table, samples.table)
    x = DOMAIN.x.choices[[2, 0]]
    worst = worst_case(samples, x, DOMAIN)
    torch.testing.assert_close(worst.value, table[:, [2, 0]].amax(-1))
    torch.testing.assert_close(samples(DOMAIN.join(x, worst.theta)), worst.value)
    optimum = robust_optimum(samples, DOMAIN)
    torch.testing.assert_close(optimum.value, table.amax(-1).amin(-1))
    joined = DOMAIN.join(optimum.x, optimum.theta).unsqueeze(-2)
    torch.testing.assert_close(samples(joined).squeeze(-1), optimum.value)


def test_errors(monkeypatch):
    samples = draw_fourier_samples(make_model(), 2, seed=0, domain=DOMAIN)
    z = DOMAIN.all_pairs()[0, :1].clone()
    z[..., 0] += 0.01
    with pytest.raises(InputDataError, match="among its `theta_choices`, got"):
        samples(z)
    with pytest.raises(UnsupportedError, match="no derivatives"):
        samples.derivatives(z, torch.tensor([0]))
    monkeypatch.setattr(grid_samples, "MAX_JOINT_POINTS", 11)
    with pytest.raises(UnsupportedError, match="12 instead of at most 11"):
        draw_fourier_samples(make_model(), 2, domain=DOMAIN)
