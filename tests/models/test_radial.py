import math

import pytest
import torch

from botorch_res.models.radial import (
    radial_derivatives,
    radial_value,
    squared_distance,
)
from tests.problems import make_kernel

SMOOTHNESS = [math.inf, 2.5, 1.5, 0.5]


@pytest.mark.parametrize("smoothness", SMOOTHNESS)
def test_values_equal_gpytorch(smoothness):
    kernel = make_kernel(smoothness, 1.0, dim=None)
    points, centers = torch.randn(2, 7, 3, dtype=torch.double)
    distance = squared_distance(points, centers, smoothness)
    expected = kernel(points, centers).to_dense().detach()
    torch.testing.assert_close(radial_value(distance, smoothness), expected)
    torch.testing.assert_close(radial_derivatives(distance, smoothness)[0], expected)


@pytest.mark.parametrize("smoothness", SMOOTHNESS)
def test_derivatives_equal_autograd(smoothness):
    difference = torch.randn(3, dtype=torch.double)

    def value(u):
        return radial_value(u.square().sum(), smoothness)

    gradient = torch.autograd.functional.jacobian(value, difference)
    hessian = torch.autograd.functional.hessian(value, difference)
    _, k1, k2 = radial_derivatives(difference.square().sum(), smoothness)
    eye = torch.eye(3, dtype=torch.double)
    torch.testing.assert_close(k1 * difference, gradient)
    torch.testing.assert_close(
        k1 * eye + k2 * torch.outer(difference, difference), hessian
    )


@pytest.mark.parametrize("smoothness", SMOOTHNESS)
@pytest.mark.parametrize("dtype", [torch.double, torch.float])
def test_coinciding_points(smoothness, dtype):
    point = torch.full((1, 2), 0.3, dtype=dtype)
    distance = squared_distance(point, point, smoothness)
    assert distance.item() == 0.0
    k0, k1, k2 = radial_derivatives(distance, smoothness)
    assert k0.item() == pytest.approx(1.0, abs=1e-7)
    assert torch.isfinite(k1).all()
    assert torch.isfinite(k2).all()
    if smoothness > 0.5:
        curvature = {math.inf: -1.0, 2.5: -5 / 3, 1.5: -3.0}[smoothness]
        assert k1.item() == pytest.approx(curvature, rel=1e-6)
