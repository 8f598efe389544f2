import torch

from botorch_res.sampling import BatchFunction
from botorch_res.sampling.affine import AffineFunction
from tests.problems import random_samples, unit_domain


def test_against_the_base_class():
    """Values and derivatives by plain evaluation and autograd."""
    domain = unit_domain(2, 1)
    samples, _ = random_samples(3, 0, num_samples=4)
    offset = torch.arange(4.0).double()
    function = AffineFunction(samples, -1.0, offset)
    z = domain.sample(5, seed=0)
    torch.testing.assert_close(function(z), offset.unsqueeze(-1) - samples(z))
    columns = torch.tensor([2, 0])
    z = torch.rand(4, 5, 3, generator=torch.Generator().manual_seed(0)).double()
    expected = BatchFunction.derivatives(function, z, columns)
    for found in (
        function.derivatives(z, columns),
        function.derivative_table(columns)(z),
    ):
        for own, other in zip(found, expected, strict=True):
            torch.testing.assert_close(own, other)
    thetas, x = domain.theta.sample(6, seed=0), domain.x.sample(7, seed=1)
    torch.testing.assert_close(
        function.theta_table(thetas, domain)(x),
        BatchFunction.theta_table(function, thetas, domain)(x),
    )
    assert torch.equal(function.lengthscale, samples.lengthscale)
    assert function.is_analytic
    assert function.dim == 3
