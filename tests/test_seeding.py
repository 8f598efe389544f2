import numpy as np
import pytest
import torch
from botorch.exceptions.errors import InputDataError

from botorch_res import RobustDomain
from botorch_res.checks import check_seed
from botorch_res.seeding import seeded

DOMAIN = RobustDomain(torch.tensor([[0.0, 0.0], [1.0, 1.0]]), [1])


def draw(seed):
    with seeded(seed):
        return torch.rand(4)


def test_same_seed_same_draw():
    assert torch.equal(draw(3), draw(3))
    assert not torch.equal(draw(3), draw(4))


def test_the_global_generator_is_left_alone():
    state = torch.get_rng_state()
    draw(3)
    assert torch.equal(torch.get_rng_state(), state)


def test_the_generators_of_all_devices_are_left_alone(monkeypatch):
    forked = []
    fork = torch.random.fork_rng
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)

    def record(devices):
        forked.extend(devices)
        return fork(devices=[])

    monkeypatch.setattr(torch.random, "fork_rng", record)
    draw(3)
    assert forked == [0, 1]


def test_none_draws_from_the_global_generator():
    with seeded(5):
        expected = torch.rand(4)
    with seeded(5):
        assert torch.equal(draw(None), expected)
        assert not torch.equal(draw(None), expected)


@pytest.mark.parametrize("seed", [0, 2**63 - 1, np.int64(3)])
def test_seeds_that_every_generator_takes(seed):
    check_seed(seed)
    assert torch.equal(DOMAIN.sample(4, seed), DOMAIN.sample(4, int(seed)))


@pytest.mark.parametrize("seed", [-1, 2**63, 2**70, 0.5, "1", True, float("nan")])
def test_not_a_seed(seed):
    message = rf"`seed` to be None or a whole number from 0 .* got {seed!r}\."
    with pytest.raises(InputDataError, match=message):
        check_seed(seed)
    with pytest.raises(InputDataError, match=message):
        DOMAIN.sample(4, seed)


def test_seed_may_be_missing():
    check_seed(None)
    with pytest.raises(InputDataError, match=r"`seed` to be a whole .* got None"):
        check_seed(None, optional=False)
