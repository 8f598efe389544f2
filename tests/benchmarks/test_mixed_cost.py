import pytest
import torch

from benchmarks import mixed_cost
from benchmarks.mixed_cost import boxes, count_operations, measure, mixed
from botorch_res.optim import WorstCaseSolver, robust_optimum
from botorch_res.sampling import draw_fourier_samples
from tests.operation_count import OperationCount


@pytest.mark.parametrize("kernel", ["categorical", "number"])
@pytest.mark.parametrize("listed", ["x", "theta"])
def test_operations_do_not_grow_with_the_rows(listed, kernel, monkeypatch):
    """Few samples and features, so that nothing is cut into chunks."""
    counts = []
    for n in (2, 5, 20):
        domain = mixed_cost.make_domain(listed, n)
        model = mixed_cost.make_model(
            domain.sample(8, seed=0), mixed_cost.make_kernel(kernel)
        )
        samples = draw_fourier_samples(model, 2, 16, seed=0, domain=domain)
        solver = WorstCaseSolver(samples, domain)
        x = domain.x.sample(3, seed=0).requires_grad_()
        with OperationCount() as worst:
            found = solver(x)
            (found.value.sum() + found.theta.sum()).backward()
        with OperationCount() as optimum:
            robust_optimum(solver)
        counts.append((worst.count, optimum.count))
    assert counts[0] == counts[1] == counts[2]


def test_rows_of_the_tables(monkeypatch):
    monkeypatch.setattr(mixed_cost, "NUM_DATA", 4)
    monkeypatch.setattr(mixed_cost, "NUM_SAMPLES", 2)
    monkeypatch.setattr(mixed_cost, "NUM_POINTS", 3)
    cells = [float(cell) for cell in measure("theta", "categorical", 2, 1)]
    assert len(cells) == 5
    assert min(cells) > 0
    assert all(number > 100 for number in count_operations("x", "number", 2))


def test_boxes_are_what_a_row_leaves():
    """One row of a mixed problem, and a box problem of the same data."""
    batch, single = boxes(2)(), mixed("x", "number", 1)()
    assert batch.view.batch_shape == (2,)
    assert batch.samples.sample_shape == (mixed_cost.NUM_SAMPLES, 2)
    free = single.domain.theta.free_bounds
    assert torch.equal(free, batch.domain.theta.free_bounds)
    assert torch.equal(single.domain.x.free_bounds, batch.domain.x.free_bounds)
