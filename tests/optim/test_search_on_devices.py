"""No synchronisation with a device, and costs that do not grow with the batch."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from botorch_res.optim import WorstCaseSolver, robust_optimum
from botorch_res.optim.robust_optima.robust_optimum import _candidates, _screen, _search
from botorch_res.sampling import draw_fourier_samples
from tests.fake_device import on_fake_device
from tests.operation_count import OperationCount
from tests.problems import random_samples, unit_domain


@pytest.mark.parametrize("theta_dim", [1, 2])
def test_operations_do_not_grow_with_the_batch(theta_dim):
    _, model = random_samples(1 + theta_dim, 7)
    domain = unit_domain(1, theta_dim)
    counts = set()
    for num_samples, b in ((2, 3), (5, 17)):
        samples = draw_fourier_samples(model, num_samples, seed=0)
        solver = WorstCaseSolver(samples, domain)
        x = domain.x.sample(b, seed=0).requires_grad_()
        with OperationCount() as counter:
            worst = solver(x)
            (worst.value.sum() + worst.theta.sum()).backward()
        counts.add(counter.count)
    assert len(counts) == 1
    with OperationCount() as few:
        robust_optimum(draw_fourier_samples(model, 2, seed=0), domain, num_starts=2)
    with OperationCount() as many:
        robust_optimum(draw_fourier_samples(model, 9, seed=0), domain, num_starts=5)
    assert few.count == many.count


@pytest.mark.parametrize(("nu", "num_thetas"), [(None, None), (1.5, 6), (None, 3)])
def test_search_stays_on_the_device(nu, num_thetas):
    """Making the tables reads the lengthscales; nothing after it waits for a device."""
    samples, _ = random_samples(3, 7, nu)
    choices = {}
    if num_thetas is not None:  # more, or fewer, than there are branches
        choices["theta_choices"] = torch.rand(num_thetas, 1).double()
    solver = WorstCaseSolver(samples, unit_domain(2, 1, **choices))
    candidates, spacing, _ = _candidates(solver)
    with FakeTensorMode():
        solver, candidates, spacing = on_fake_device(
            (solver, candidates, spacing), "meta"
        )
        x = torch.rand(4, 2, dtype=torch.double, device="meta", requires_grad=True)
        worst = solver(x)
        (worst.value.sum() + worst.theta.sum()).backward()
        assert x.grad.device.type == "meta"
        with torch.no_grad():
            starts = _screen(solver, candidates, spacing, 4)
            optimum = _search(solver, starts, spacing, 1)
        assert {part.device.type for part in optimum} == {"meta"}
        assert optimum.x.shape == (8, 2)
