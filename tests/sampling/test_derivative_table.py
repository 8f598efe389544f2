import pytest
import torch
from botorch.models.transforms.input import Log10, Normalize

from botorch_res.sampling import draw_fourier_samples
from tests.problems import DOUBLE, Draws, make_model


@pytest.mark.parametrize("transform", [Normalize(2), Log10(indices=[0])])
def test_table_equals_central_differences(transform):
    draws = Draws(0)
    X = 0.1 + 0.9 * draws.uniform(6, 2)
    model = make_model(X, (6.0 * X).sin().sum(-1, True), input_transform=transform)
    samples = draw_fourier_samples(model, num_samples=3, seed=0)
    z = 0.2 + 0.7 * draws.uniform(3, 5, 2)
    columns = torch.tensor([1, 0])
    value, gradient, hessian = samples.derivative_table(columns)(z)
    assert torch.allclose(value, samples(z))
    step = 1e-4 * torch.eye(2, **DOUBLE)[columns]
    slopes = torch.stack([samples(z + h) - samples(z - h) for h in step], -1) / 2e-4
    assert torch.allclose(gradient, slopes, rtol=1e-5, atol=1e-5)
    for i, h in enumerate(step):
        ahead, behind = (samples.derivatives(z + s * h, columns) for s in (1.0, -1.0))
        rows = (ahead.gradient - behind.gradient) / 2e-4
        assert torch.allclose(hessian[..., i, :], rows, rtol=1e-4, atol=1e-4)
