import math
import re

import pytest
import torch
from botorch.exceptions.errors import BotorchTensorDimensionError, InputDataError

from botorch_res import RobustDomain
from botorch_res.sampling import CallableFunction, as_batch_function, batch_function
from tests.problems import unit_domain

DOMAIN = RobustDomain(unit_domain(2, 1).bounds, uncontrollable=[1])


def waves(z):
    """Two functions of three variables with derivatives known by hand."""
    first = z[..., 0] * z[..., 1].sin()
    second = (z[..., 2] * z[..., 1]).exp()
    if z.ndim == 2:
        return torch.stack([first, second])
    return torch.stack([first[0], second[1]])


def test_autograd_derivatives_equal_those_by_hand():
    wrapped = as_batch_function(waves, DOMAIN)
    assert wrapped.sample_shape == (2,)
    z = torch.rand(2, 5, 3, dtype=torch.double)
    value, gradient, hessian = wrapped.derivatives(z, torch.tensor([0, 1]))
    x, t = z[0, :, 0], z[0, :, 1]
    torch.testing.assert_close(value, waves(z))
    torch.testing.assert_close(gradient[0], torch.stack([t.sin(), x * t.cos()], -1))
    zero = torch.zeros_like(x)
    expected = torch.stack([zero, t.cos(), t.cos(), -x * t.sin()], -1)
    torch.testing.assert_close(hessian[0], expected.reshape(5, 2, 2))
    t, y = z[1, :, 1], z[1, :, 2]
    torch.testing.assert_close(gradient[1, :, 1], y * (t * y).exp())
    torch.testing.assert_close(hessian[1, :, 1, 1], y.square() * (t * y).exp())
    assert not value.requires_grad


def test_functions_without_curvature_or_dependence():
    z = torch.rand(4, 3, dtype=torch.double)
    columns = torch.tensor([0, 1])
    linear = as_batch_function(lambda z: 3.0 * z[..., 0], DOMAIN)
    _, gradient, hessian = linear.derivatives(z, columns)
    assert gradient.tolist() == [[3.0, 0.0]] * 4
    assert not hessian.any()
    constant = as_batch_function(lambda z: torch.ones_like(z[..., 0]).detach(), DOMAIN)
    value, gradient, hessian = constant.derivatives(z, columns)
    assert value.tolist() == [1.0] * 4
    assert not gradient.any()
    assert not hessian.any()


def test_hessians_without_second_derivatives_in_autograd():
    """``torch.cdist`` has one derivative only."""
    bounds = torch.tensor([[0.0, 0.0, -1e4], [1.0, 1e-3, 1e4]], dtype=torch.double)
    domain = RobustDomain(bounds, uncontrollable=[1])
    width = bounds[1] - bounds[0]

    def distance(z):
        return torch.cdist(z / width, torch.ones(1, 3, dtype=z.dtype)).squeeze(-1)

    wrapped = as_batch_function(distance, domain)
    z = domain.sample(6, seed=1)
    columns = torch.tensor([2, 1])
    value, gradient, hessian = wrapped.derivatives(z, columns)
    u = z / width - 1
    r = u.norm(dim=-1)
    torch.testing.assert_close(value, r)
    part, unit = u[:, [2, 1]], width[[2, 1]]
    torch.testing.assert_close(gradient * unit, part / r[:, None])
    exact = torch.eye(2, dtype=torch.double) / r[:, None, None]
    exact = exact - part[:, :, None] * part[:, None, :] / r[:, None, None] ** 3
    scaled = hessian * unit[:, None] * unit
    torch.testing.assert_close(scaled, exact, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("limit", [2**18, 7])
def test_table_of_all_pairs(monkeypatch, limit):
    monkeypatch.setattr(batch_function, "MAX_POINTS_AT_ONCE", limit)
    thetas = torch.rand(4, 1, dtype=torch.double)
    table = as_batch_function(waves, DOMAIN).theta_table(thetas, DOMAIN)
    x = torch.rand(5, 2, dtype=torch.double)
    values = table(x)
    assert values.shape == (2, 5, 4)
    for j in range(5):
        for m in range(4):
            t = thetas[m, 0].item()
            assert values[0, j, m].item() == pytest.approx(x[j, 0] * math.sin(t))
            assert values[1, j, m].item() == pytest.approx(math.exp(x[j, 1] * t))
    torch.testing.assert_close(table(x.expand(2, 5, 2)), values)


def test_wrapping():
    wrapped = as_batch_function(waves, DOMAIN)
    assert as_batch_function(wrapped, DOMAIN) is wrapped
    assert wrapped.lengthscale is None
    assert as_batch_function(lambda z: z.sum(-1), DOMAIN).sample_shape == ()


@pytest.mark.parametrize("dim", [2, 3])
def test_values_of_the_wrong_shape(dim):
    """One value for each column must not pass as one for each point."""
    domain = RobustDomain(unit_domain(dim - 1, 1).bounds, uncontrollable=[1])
    message = rf"x {dim + 1}, got shape \({dim + 1}, {dim}\)"
    with pytest.raises(BotorchTensorDimensionError, match=message):
        CallableFunction(lambda z: z, domain)


def test_values_that_are_not_finite_numbers():
    with pytest.raises(InputDataError, match="return a tensor, got list"):
        CallableFunction(lambda z: z.sum(-1).tolist(), DOMAIN)
    point = DOMAIN.sample(4, seed=0)[2]
    for bad in (math.nan, math.inf):

        def broken(z, bad=bad):
            return torch.where((z == point).all(-1), bad, waves(z))

        message = re.escape(f"in the whole domain, but at {point.tolist()} it is not")
        with pytest.raises(InputDataError, match=message):
            CallableFunction(broken, DOMAIN)
