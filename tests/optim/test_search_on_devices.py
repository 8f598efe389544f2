"""No synchronisation with a device, and costs that do not grow with the batch."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from botorch_res.optim import WorstCaseSolver, robust_optimum
from botorch_res.optim.robust_optima.robust_optimum import _screen, _search, fill
from botorch_res.optim.robust_optima.robust_problem import RobustProblem
from botorch_res.sampling import draw_fourier_samples
from botorch_res.sampling.affine import AffineFunction
from tests.fake_device import on_fake_device
from tests.operation_count import OperationCount
from tests.problems import line, random_samples, sloppy_domain, unit_domain


@pytest.mark.parametrize("domain", [unit_domain(1, 1), unit_domain(1, 2)])
def test_operations_do_not_grow_with_the_batch(domain):
    _, model = random_samples(domain.dim, 7)
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


@pytest.mark.parametrize(
    ("nu", "domain"),
    [
        (None, unit_domain(2, 1)),
        # More choices, or fewer, than there are branches.
        (1.5, unit_domain(2, 1, theta_choices=line(6))),
        (None, unit_domain(2, 1, theta_choices=line(3))),
        (None, sloppy_domain(2, 1, 1)),
        (2.5, sloppy_domain(2, 0, 1)),
    ],
)
def test_search_stays_on_the_device(nu, domain):
    """Making the tables reads the lengthscales; nothing after it waits for a device."""
    samples, _ = random_samples(domain.dim, 7, nu)
    solver = WorstCaseSolver(samples, domain)
    constraint = AffineFunction(samples, -1.0, samples.lengthscale.sum())
    problem = RobustProblem(solver, [WorstCaseSolver(constraint, domain)])
    candidates, spacing, _ = fill(problem)
    with FakeTensorMode():
        problem, candidates, spacing = on_fake_device(
            (problem, candidates, spacing), "meta"
        )
        solver = problem.objective
        x = torch.rand(4, 2, dtype=torch.double, device="meta", requires_grad=True)
        worst = solver(x)
        (worst.value.sum() + worst.theta.sum()).backward()
        assert x.grad.device.type == "meta"
        with torch.no_grad():
            starts, price = _screen(problem, candidates, spacing, 4)
            optimum = _search(problem, starts, spacing, 1, price)
        assert {part.device.type for part in optimum} == {"meta"}
        assert optimum.x.shape == (8, 2)
