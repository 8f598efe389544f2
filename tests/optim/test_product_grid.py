import itertools

import pytest
import torch

from botorch_res.optim.worst_cases.product_grid import ProductGrid, grid_counts

LIKE = torch.zeros((), dtype=torch.double)


def test_counts():
    width = torch.tensor([1.0, 10.0], dtype=torch.double)
    scale = torch.tensor([0.1, 20.0], dtype=torch.double)
    assert grid_counts(scale, width, 3.0, 10**6) == [31, 5]
    assert grid_counts(scale / 2, width, 3.0, 10**6) == [61, 5]
    assert grid_counts(None, width, 3.0, 10**6) == [25, 25]
    assert grid_counts(None, torch.ones(7), 3.0, 10**9) == [5] * 7
    rough = torch.full((3,), 0.01, dtype=torch.double)
    assert grid_counts(rough, torch.ones(3), 3.0, 1000) == [10] * 3
    assert grid_counts(rough, torch.ones(3), 3.0, 8) == [3] * 3


@pytest.mark.parametrize("counts", [[5], [4, 6], [3, 4, 5], [3, 3, 4, 3]])
def test_local_maxima_equal_those_of_a_plain_search(counts):
    grid = ProductGrid(counts, LIKE)
    generator = torch.Generator().manual_seed(0)
    values = torch.rand(2, len(grid.points), generator=generator, dtype=torch.double)
    for row in values:
        table = row.reshape(counts)
        expected = []
        for index in itertools.product(*(range(n) for n in counts)):
            around = [slice(max(0, i - 1), i + 2) for i in index]
            if table[index] == table[tuple(around)].max():
                expected.append(table[index].item())
        k = len(expected)
        found, index = grid._local_maxima(row, k + 1)
        assert found[-1].isneginf()
        assert torch.equal(found[:-1], row[index[:-1]])
        found = found[:-1]
        assert sorted(found.tolist()) == sorted(expected)
    assert grid._local_maxima(values, 10**6)[1].shape == values.shape


@pytest.mark.parametrize("dim", [1, 2, 3, 4])
def test_peaks_of_quadratics_are_exact(dim):
    grid = ProductGrid([5, 6, 4, 5][:dim], LIKE)
    top = torch.tensor([0.37, 0.61, 0.4, 0.55], dtype=torch.double)[:dim]
    root = torch.randn(dim, dim, generator=torch.Generator().manual_seed(2)).double()
    matrix = 0.2 * root @ root.mT + torch.eye(dim, dtype=torch.double)
    u = grid.points - top
    values = 3.0 - (u * (u @ matrix)).sum(-1)
    theta, value = grid.peaks(values, 1)
    torch.testing.assert_close(theta[0], top)
    torch.testing.assert_close(value, torch.tensor([3.0], dtype=torch.double))


def test_peaks_at_the_edges_and_their_order():
    grid = ProductGrid([9], LIKE)
    t = grid.points.squeeze(-1)
    values = (t - 0.45).square()  # convex: a maximum at either end
    theta, value = grid.peaks(values, 2)
    assert theta.flatten().tolist() == [1.0, 0.0]
    torch.testing.assert_close(value, values[[8, 0]])


def test_margin_surrounds_the_cube():
    like = torch.zeros(1, dtype=torch.double)
    plain, wide = ProductGrid([3, 5], like), ProductGrid([3, 5], like, margin=2)
    assert len(wide.points) == 7 * 9
    assert wide.points.amin() == -1.0
    assert wide.points.amax() == 2.0
    torch.testing.assert_close(wide.inside(wide.points.mT).mT, plain.points)
    values = torch.arange(15.0)
    assert plain.inside(values) is values
