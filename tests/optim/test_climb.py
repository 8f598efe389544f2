import torch

from botorch_res.optim.tuples import select
from botorch_res.optim.worst_cases.newton import aim, climb
from botorch_res.sampling import Derivatives


def wave(theta):
    """sin(7 a) sin(5 b), with its derivatives."""
    a, b = 7 * theta[..., 0], 5 * theta[..., 1]
    gradient = torch.stack([7 * a.cos() * b.sin(), 5 * a.sin() * b.cos()], -1)
    value = a.sin() * b.sin()
    mixed = 35 * a.cos() * b.cos()
    hessian = torch.stack([-49 * value, mixed, mixed, -25 * value], -1)
    return Derivatives(value, gradient, hessian.unflatten(-1, (2, 2)))


def run(start, num_steps):
    radius = torch.tensor([0.1, 0.1], dtype=torch.double)
    return climb(wave, aim(start, wave(start), radius), num_steps)


def test_climbers_reach_maxima_and_never_go_down():
    start = torch.rand(200, 2, generator=torch.Generator().manual_seed(0)).double()
    value = wave(start).value
    for num_steps in range(1, 6):
        climbers = run(start, num_steps)
        assert (climbers.value >= value).all()
        assert ((climbers.theta >= 0) & (climbers.theta <= 1)).all()
        torch.testing.assert_close(climbers.value, wave(climbers.theta).value)
        value = climbers.value
    final = run(start, 25)
    # At the end no climber has anything to gain, whether inside or at a bound.
    assert (final.gain < 1e-9).double().mean() > 0.95
    near = start.new_tensor([[0.22, 0.33]])
    expected = near.new_tensor([[torch.pi / 14, torch.pi / 10]])
    torch.testing.assert_close(run(near, 4).theta, expected)


def test_select():
    climbers = run(torch.rand(3, 4, 2, dtype=torch.double), 1)
    index = torch.tensor([[2], [0], [3]])
    best = select(climbers, index)
    for whole, part in zip(climbers, best, strict=True):
        expected = torch.stack([whole[i, j] for i, j in enumerate((2, 0, 3))])
        assert torch.equal(part.squeeze(1), expected)
