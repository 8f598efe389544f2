import numpy as np
import pytest

from tests.reference_problems import NUM_PROBLEMS, PATH, solve


@pytest.fixture(scope="module")
def stored():
    with np.load(PATH) as numbers:
        return dict(numbers)


@pytest.mark.parametrize("seed", range(NUM_PROBLEMS))
def test_results_are_those_stored(seed, stored):
    found = {f"{seed}/{name}": tensor for name, tensor in solve(seed).items()}
    assert found.keys() == {k for k in stored if k.startswith(f"{seed}/")}
    for name, tensor in found.items():
        expected = stored[name]
        assert tensor.shape == expected.shape, name
        np.testing.assert_allclose(
            tensor.detach(), expected, rtol=0, atol=1e-9, err_msg=name
        )
