import math

import pytest
import torch
from botorch.exceptions.errors import BotorchTensorDimensionError, InputDataError

from botorch_res.optim import robust_optimum, worst_case
from botorch_res.sampling import posterior_mean
from tests.problems import UNIT as BOUNDS
from tests.problems import make_model, unit_domain

DOMAIN = unit_domain()


def function(z):
    return (z[..., 0] - z[..., 1]).square()


@pytest.mark.parametrize("effort", [0.0, 1e-5, -1.0, math.nan, math.inf, "2"])
def test_effort(effort):
    message = f"`effort` to be a finite number of at least 0.01, got {effort!r}"
    with pytest.raises(InputDataError, match=message):
        worst_case(function, BOUNDS[:, :1], DOMAIN, effort=effort)
    with pytest.raises(InputDataError, match=message):
        robust_optimum(function, DOMAIN, effort=effort)


@pytest.mark.parametrize("argument", ["num_starts", "num_steps"])
@pytest.mark.parametrize("count", [0, -1, 2.5, "3"])
def test_counts(argument, count):
    with pytest.raises(
        InputDataError, match=f"`{argument}` to be .* of at least 1, got {count!r}"
    ):
        robust_optimum(function, DOMAIN, **{argument: count})


def test_initial_x():
    with pytest.raises(InputDataError, match="`initial_x` to be a Tensor, got list"):
        robust_optimum(function, DOMAIN, initial_x=[[0.5]])
    with pytest.raises(InputDataError, match=r"`initial_x` in the domain, got \[\[5"):
        robust_optimum(function, DOMAIN, initial_x=torch.tensor([[5.0]]).double())
    with pytest.raises(BotorchTensorDimensionError, match=r"`initial_x` of .*\(1, 2\)"):
        robust_optimum(function, DOMAIN, initial_x=BOUNDS[:1])
    x, _, value = robust_optimum(
        function, DOMAIN, initial_x=torch.tensor([[0.5]]).double()
    )
    assert float(x) == pytest.approx(0.5)
    assert float(value) == pytest.approx(0.25)


def test_no_function():
    with pytest.raises(InputDataError, match="BatchFunction or a callable, got NoneT"):
        robust_optimum(None, DOMAIN)


@pytest.mark.parametrize("bad", [1.5, math.nan, math.inf])
def test_points_outside_of_the_domain(bad):
    x = torch.tensor([[0.5], [bad]], dtype=torch.double)
    with pytest.raises(InputDataError, match=rf"`x` in the domain, got \[{bad}\]"):
        worst_case(function, x, DOMAIN)


@pytest.mark.parametrize("bad", [math.nan, -math.inf])
@pytest.mark.parametrize("column", [0, 1])
def test_functions_with_a_hole(column, bad):
    """Too small a hole for the first few points, at which a callable is probed."""

    def broken(z):
        return torch.where((z[..., column] - 0.5).abs() < 0.02, bad, function(z))

    with pytest.raises(InputDataError, match="finite in the whole domain, but at "):
        robust_optimum(broken, DOMAIN)
    with pytest.raises(InputDataError, match="finite in the whole domain, but at "):
        worst_case(broken, torch.tensor([[0.5]], dtype=torch.double), DOMAIN)


def test_other_types():
    with pytest.raises(
        InputDataError, match=r"`domain` to be a RobustDomain.* NoneType"
    ):
        worst_case(function, BOUNDS[:, :1], None)
    with pytest.raises(InputDataError, match=r"`domain` to be a RobustDomain.* Tensor"):
        robust_optimum(function, BOUNDS)
    with pytest.raises(InputDataError, match="`x` to be a Tensor, got list"):
        worst_case(function, [[0.5]], DOMAIN)


def test_precision_of_the_domain():
    X = torch.rand(4, 2, dtype=torch.double)
    Y = torch.tensor([[-1.0], [0.0], [0.5], [0.5]], dtype=torch.double)
    mean = posterior_mean(make_model(X, Y))
    message = "`domain` of the function's dtype torch.float64, got torch.float32; use"
    with pytest.raises(InputDataError, match=message):
        robust_optimum(mean, DOMAIN.to(torch.float))
