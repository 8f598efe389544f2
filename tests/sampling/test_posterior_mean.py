import math
from functools import partial

import pytest
import torch
from botorch.models.transforms import Normalize, Standardize
from botorch.models.transforms.input import Log10
from gpytorch.kernels import MaternKernel, PeriodicKernel, RBFKernel
from gpytorch.means import LinearMean

from botorch_res.models import ExactGPView
from botorch_res.sampling import Expansion, FunctionSum, posterior_mean
from tests.problems import QuadraticMean, make_model


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize(
    ("kernel", "mean", "closed_form"),
    [
        (RBFKernel, None, True),
        (MaternKernel, None, True),
        (PeriodicKernel, None, False),
        (RBFKernel, partial(LinearMean, 2), True),
        (RBFKernel, QuadraticMean, False),
    ],
)
def test_equals_the_models_posterior(batch, kernel, mean, closed_form):
    shape = torch.Size(batch)
    X = 3 + 10 * torch.rand(*batch, 9, 2, dtype=torch.double)
    Y = X.sin().sum(-1, keepdim=True) * 20 + 300
    model = make_model(
        X,
        Y,
        kernel=kernel(batch_shape=shape),
        mean_module=None if mean is None else mean(batch_shape=shape).double(),
        input_transform=Normalize(2, batch_shape=shape),
        outcome_transform=Standardize(1, batch_shape=shape),
    ).eval()
    function = posterior_mean(model)
    assert isinstance(function, (Expansion, FunctionSum)) == closed_form
    assert function.sample_shape == (1, *batch)
    Z = 3 + 10 * torch.rand(6, 2, dtype=torch.double)
    expected = model.posterior(Z).mean.detach().mT.movedim(-2, 0)
    torch.testing.assert_close(function(Z), expected, rtol=1e-8, atol=1e-8)
    own = Z.expand(1, *batch, 6, 2)
    torch.testing.assert_close(function(own), expected, rtol=1e-8, atol=1e-8)
    derivatives = function.derivatives(own, torch.tensor([0, 1]))
    step = torch.tensor([1e-4, 0.0], dtype=torch.double)
    slope = (function(own + step) - function(own - step)) / 2e-4
    torch.testing.assert_close(
        derivatives.gradient[..., 0], slope, rtol=1e-5, atol=1e-5
    )
    again = posterior_mean(ExactGPView(model))
    torch.testing.assert_close(again(Z), expected, rtol=1e-8, atol=1e-8)
    again = function.derivatives(own, torch.tensor([0])).hessian[..., 0, 0]
    bend = (function(own + step) - 2 * function(own) + function(own - step)) / 1e-8
    torch.testing.assert_close(again, bend, rtol=1e-3, atol=1e-3)


def test_linear_mean_of_transformed_columns():
    """A slope that is linear in the logarithm has no closed form in the user's unit."""
    X = 1.0 + 9.0 * torch.rand(9, 2, dtype=torch.double)
    model = make_model(
        X,
        X.log10().sum(-1, keepdim=True),
        kernel=RBFKernel(),
        mean_module=LinearMean(2).double(),
        input_transform=Log10([0, 1]),
    ).eval()
    function = posterior_mean(model)
    assert isinstance(function, FunctionSum)
    assert function.lengthscale is None
    Z = 1.0 + 9.0 * torch.rand(6, 2, dtype=torch.double)
    columns = torch.tensor([0, 1])
    found = function.derivatives(Z, columns)
    torch.testing.assert_close(found.value, model.posterior(Z).mean.detach().mT)
    linear = function.terms[-1]
    slope = linear.weights[..., 0] / (Z * math.log(10.0))
    expected = torch.zeros(1, 6, 2, 2, dtype=torch.double)
    expected[0, :, columns, columns] = -slope / Z
    own = linear.derivatives(Z, columns)
    gradient, hessian = own.gradient.reshape(6, 2), own.hessian.reshape(6, 2, 2)
    torch.testing.assert_close(gradient, slope, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(hessian, expected[0], rtol=1e-3, atol=1e-4)


def test_width_of_the_data():
    """Differences adapt to the data's units."""
    for x, width in (
        ([[0.0, 3.0]], [1.0, 3.0]),
        ([[1.0, 0.0], [1.0, 5.0]], [1.0, 5.0]),
    ):
        X = torch.tensor(x, dtype=torch.double)
        Y = torch.tensor([[-0.7], [0.7]], dtype=torch.double)[: len(X)]
        model = make_model(X, Y, kernel=PeriodicKernel())
        assert posterior_mean(model).width.tolist() == width
