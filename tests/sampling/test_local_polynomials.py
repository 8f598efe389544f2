import pytest
import torch
from botorch.models.transforms.input import Normalize
from gpytorch.kernels import MaternKernel, RBFKernel

from botorch_res import RobustDomain
from botorch_res.optim import WorstCaseSolver
from botorch_res.sampling import BatchFunction, draw_fourier_samples
from botorch_res.sampling.local_polynomials import LocalPolynomials, expand_locally
from tests.problems import DOUBLE, Draws, make_model

BOX = torch.tensor([[-0.2, 0.1], [1.1, 0.8]], **DOUBLE)
SCALE = torch.tensor([0.4, 0.25], **DOUBLE)


def make_samples(batch_shape=(), kernel=RBFKernel, transform=None, num_samples=3):
    draws = Draws(0)
    X = draws.uniform(*batch_shape, 7, 2)
    covariance = kernel(ard_num_dims=2, batch_shape=torch.Size(batch_shape)).double()
    covariance.lengthscale = SCALE
    Y = (6.0 * X).sin().sum(-1, True)
    model = make_model(X, Y, kernel=covariance, input_transform=transform)
    return draw_fourier_samples(model, num_samples=num_samples, seed=0)


def box_points(n, *shape):
    """Points of the box, its corners, and the middle between two places."""
    unit = Draws(1).uniform(*shape, n, 2)
    unit[..., :4, :] = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]], **DOUBLE)
    return torch.lerp(*BOX, unit)


@pytest.mark.parametrize("batch_shape", [(), (2,)])
def test_equal_to_the_functions(batch_shape):
    samples = make_samples(batch_shape)
    local = expand_locally(samples, BOX)
    z = box_points(300, *samples.sample_shape)
    columns = torch.tensor([1, 0, 1])
    value, gradient, hessian = local.derivative_table(columns)(z)
    leaf = z.clone().requires_grad_()
    expected = samples(leaf)
    assert torch.allclose(value, expected, rtol=0.0, atol=3e-9)
    (slope,) = torch.autograd.grad(expected.sum(), leaf, create_graph=True)
    units = SCALE[columns]
    error = units * (gradient - slope[..., columns])
    assert error.abs().max() < 3e-7
    rows = [
        torch.autograd.grad(s.sum(), leaf, retain_graph=True)[0]
        for s in slope.unbind(-1)
    ]
    second = torch.stack(rows, dim=-2)[..., columns, :][..., columns]
    error = units * units.unsqueeze(-1) * (hessian - second)
    assert error.abs().max() < 3e-5


def test_shared_points_are_those_of_every_function():
    samples = make_samples((2,))
    table = expand_locally(samples, BOX).derivative_table(torch.tensor([0]))
    z = box_points(9)
    shared = table(z)
    own = table(z.expand(3, 2, 9, 2))
    assert all(map(torch.equal, shared, own))


def test_places_beyond_the_box_have_no_value():
    samples = make_samples()
    table = expand_locally(samples, BOX).derivative_table(torch.tensor([0, 1]))
    width = BOX[1] - BOX[0]
    z = torch.stack([BOX[1] + 1e-12 * width, BOX[1] + 0.1 * width, BOX[0] - width])
    value = table(z).value
    assert torch.allclose(value[..., 0], samples(BOX[1:])[..., 0], rtol=0.0, atol=3e-9)
    assert value[..., 1:].isnan().all()
    z[0, 0] = torch.nan
    assert table(z).value.isnan().all()


class Cubic(BatchFunction):
    """A polynomial, of which an expansion is exact."""

    sample_shape = torch.Size([])
    is_analytic = True
    dim = 2

    def __init__(self, scale):
        super().__init__()
        self.lengthscale = torch.tensor(scale, **DOUBLE)

    def forward(self, z):
        x, y = z.unbind(-1)
        return x**3 - 2.0 * x * y**2 + y


@pytest.mark.parametrize("scale", [[0.3, 0.2], [torch.inf, 0.1]])
def test_polynomials_are_exact(scale):
    local = expand_locally(Cubic(scale), BOX)
    z = box_points(50)
    value, gradient, hessian = local.derivative_table(torch.tensor([0, 1]))(z)
    x, y = z.unbind(-1)
    slope = torch.stack([3 * x**2 - 2 * y**2, 1 - 4 * x * y], dim=-1)
    second = torch.stack([6 * x, -4 * y, -4 * y, -4 * x], dim=-1).unflatten(-1, (2, 2))
    assert torch.allclose(value, Cubic(scale)(z), rtol=0.0, atol=1e-10)
    assert torch.allclose(gradient, slope, rtol=0.0, atol=1e-9)
    assert torch.allclose(hessian, second, rtol=0.0, atol=1e-7)


def test_functions_for_which_it_does_not_pay():
    samples = make_samples()
    assert isinstance(expand_locally(samples, BOX), LocalPolynomials)
    assert expand_locally(samples, BOX[0] + 100.0 * (BOX - BOX[0])) is None
    assert expand_locally(make_samples(kernel=MaternKernel), BOX) is None
    unknown = Cubic([0.3, 0.2])
    unknown.lengthscale = None
    assert expand_locally(unknown, BOX) is None
    assert expand_locally(Cubic([0.3]), BOX[:, :1]) is None


@pytest.mark.parametrize("tolerances", [{0: 0.2, 1: 0.1}, {0: (0.05, 0.1)}])
def test_worst_cases_are_those_of_the_functions(tolerances):
    """The same search on the functions themselves ends at the same values."""
    samples = make_samples(transform=Normalize(2), num_samples=16)
    bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], **DOUBLE)
    other = [] if 1 in tolerances else [1]
    domain = RobustDomain(bounds, other, tolerances=tolerances)
    solver = WorstCaseSolver(samples, domain)
    assert solver.search.plan.radius == 0
    x = domain.x.sample(64, seed=0)
    theta, value = solver(x)
    assert (value - samples(domain.join(x, theta))).abs().max() < 1e-7
    line = [torch.linspace(*side, 81, **DOUBLE) for side in domain.theta.bounds.T]
    grid = torch.cartesian_prod(*line)
    best = samples.theta_table(grid, domain)(x).amax(dim=-1)
    # The rate that ``test_worst_case`` asks of two columns.
    assert (value >= best - 1e-7).double().mean() >= 0.99
