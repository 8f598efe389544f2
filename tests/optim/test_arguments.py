import pytest
import torch
from botorch.exceptions.errors import BotorchTensorDimensionError, InputDataError

from botorch_res import RobustDomain
from botorch_res.optim import robust_optimum, worst_case

BOUNDS = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.double)
DOMAIN = RobustDomain(BOUNDS, [1])


def function(z):
    return (z[..., 0] - z[..., 1]).square()


@pytest.mark.parametrize("effort", [0.0, -1.0, float("nan")])
def test_effort(effort):
    message = f"positive `effort`, got {effort}"
    with pytest.raises(InputDataError, match=message):
        worst_case(function, BOUNDS[:, :1], DOMAIN, effort=effort)
    with pytest.raises(InputDataError, match=message):
        robust_optimum(function, DOMAIN, effort=effort)


@pytest.mark.parametrize("argument", ["num_starts", "num_steps"])
@pytest.mark.parametrize("count", [0, -1])
def test_counts(argument, count):
    with pytest.raises(
        InputDataError, match=f"`{argument}` of at least 1, got {count}"
    ):
        robust_optimum(function, DOMAIN, **{argument: count})


def test_initial_x():
    with pytest.raises(InputDataError, match=r"`initial_x` in the domain, got \[\[5"):
        robust_optimum(function, DOMAIN, initial_x=torch.tensor([[5.0]]).double())
    with pytest.raises(BotorchTensorDimensionError, match=r"`x` of shape .*\(1, 2\)"):
        robust_optimum(function, DOMAIN, initial_x=BOUNDS[:1])
    x, _, value = robust_optimum(
        function, DOMAIN, initial_x=torch.tensor([[0.5]]).double()
    )
    assert float(x) == pytest.approx(0.5)
    assert float(value) == pytest.approx(0.25)
