import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from botorch_res.optim.robust_optima.ascent import advance, begin
from botorch_res.optim.tuples import select

DOUBLE = {"dtype": torch.double}


def climb(function, starts: Tensor, rounds: int = 30, movable=None):
    if movable is None:
        movable = torch.ones(starts.shape[-1], dtype=torch.bool)
    state = begin(function, starts, movable)
    state = advance(function, state, movable, rounds, finish=True)
    return state.points, state.values


def test_smooth_maxima_in_the_cube_and_on_its_faces():
    center = torch.tensor([0.3, 1.4, -0.2], **DOUBLE)
    matrix = torch.tensor([[4.0, 1.0, 0.0], [1.0, 3.0, 0.0], [0.0, 0.0, 1.0]], **DOUBLE)

    def function(u):
        step = u - center
        return -(step * (step @ matrix)).sum(dim=-1)

    starts = torch.rand(7, 3, generator=torch.Generator().manual_seed(0), **DOUBLE)
    points, values = climb(function, starts)
    # With the second at one and the third at zero, the first solves 4 (u - 0.3) = 0.4.
    expected = torch.tensor([0.4, 1.0, 0.0], **DOUBLE)
    assert torch.allclose(points, expected.expand(7, 3), atol=1e-7)
    assert torch.allclose(values, function(expected).expand(7), atol=1e-12)


def test_kinks():
    # A ridge across the gradient: its maximum is a kink in one direction.
    def function(u):
        x, y = u.unbind(-1)
        return -(x - 0.6).abs() - 3.0 * (y - x).abs()

    starts = torch.rand(16, 2, generator=torch.Generator().manual_seed(1), **DOUBLE)
    _, values = climb(function, starts, rounds=30)
    assert values.max() > -1e-3
    before = function(starts)
    assert (values >= before).all()
    assert values.median() > 0.5 * before.median()


def test_problems_do_not_know_of_one_another():
    def function(u):
        return (6.0 * u).sin().sum(dim=-1) - (u - 0.4).square().sum(dim=-1)

    starts = torch.rand(3, 5, 2, generator=torch.Generator().manual_seed(2), **DOUBLE)
    points, values = climb(function, starts)
    alone, value = climb(function, starts[1, 3])
    assert torch.allclose(points[1, 3], alone, atol=1e-10)
    assert torch.allclose(values[1, 3], value, atol=1e-12)


def test_columns_that_may_not_move():
    def function(u):
        return u.sum(dim=-1)

    starts = torch.full((2, 3), 0.25, **DOUBLE)
    points, values = climb(function, starts, movable=torch.tensor([True, False, True]))
    assert torch.equal(points[:, 1], starts[:, 1])
    assert torch.allclose(points[:, [0, 2]], torch.ones(2, 2, **DOUBLE))
    assert torch.allclose(values, torch.full((2,), 2.25, **DOUBLE))


def test_flat_function_stays():
    starts = torch.rand(4, 2, generator=torch.Generator().manual_seed(3), **DOUBLE)
    points, values = climb(lambda u: 0.0 * u.sum(dim=-1), starts, rounds=3)
    assert torch.equal(points, starts)
    assert torch.equal(values, torch.zeros(4, **DOUBLE))


def test_no_synchronisation():
    with FakeTensorMode():
        starts = torch.empty(4, 2, device="meta", **DOUBLE)
        movable = torch.empty(2, device="meta", dtype=torch.bool)
        points, values = climb(
            lambda u: u.sin().sum(dim=-1), starts, rounds=2, movable=movable
        )
    assert points.shape == (4, 2)
    assert values.device.type == "meta"
    with FakeTensorMode(), pytest.raises(RuntimeError, match="device"):
        climb(lambda u: u.sum(dim=-1), torch.empty(4, 2, device="meta"))


def test_rounds_can_be_split_and_problems_given_up():
    """As if the others had never been there."""

    def function(u):
        return (6.0 * u).sin().sum(dim=-1) - (u - 0.4).square().sum(dim=-1)

    starts = torch.rand(6, 2, generator=torch.Generator().manual_seed(3), **DOUBLE)
    movable = torch.ones(2, dtype=torch.bool)
    state = begin(function, starts, movable)
    state = advance(function, state, movable, 3, finish=False)
    index = torch.tensor([4, 1])
    state = advance(function, select(state, index, dim=0), movable, 5, finish=False)
    points, values = climb(function, starts[index], rounds=8)
    assert torch.allclose(state.points, points, atol=1e-12)
    assert torch.allclose(state.values, values, atol=1e-12)


def test_the_last_round_goes_without_gradients():
    with_gradient = []

    def function(u):
        with_gradient.append(u.requires_grad)
        return (6.0 * u).sin().sum(dim=-1) - (u - 0.4).square().sum(dim=-1)

    starts = torch.rand(6, 2, generator=torch.Generator().manual_seed(3), **DOUBLE)
    movable = torch.ones(2, dtype=torch.bool)
    state = begin(function, starts, movable)
    exact = advance(function, state, movable, 4, finish=False)
    assert with_gradient == [True] * 5
    final = advance(function, state, movable, 4, finish=True)
    assert with_gradient[5:] == [True, True, True, False]
    assert torch.equal(final.points, exact.points)
    assert torch.equal(final.values, exact.values)
