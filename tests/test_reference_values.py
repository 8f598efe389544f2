import numpy as np
import pytest

from tests.reference_problems import PATH, save_on_plain_processor


def test_results_are_those_stored(tmp_path, subtests):
    path = tmp_path / "values.npz"
    save_on_plain_processor(path)
    with np.load(path) as numbers:
        found = dict(numbers)
    with np.load(PATH) as numbers:
        stored = dict(numbers)
    if found.pop("arithmetic") != stored.pop("arithmetic"):
        pytest.skip("this machine rounds differently from that of the stored values")
    assert found.keys() == stored.keys()
    for name, values in found.items():
        with subtests.test(name):
            assert values.shape == stored[name].shape
            np.testing.assert_allclose(values, stored[name], rtol=0, atol=1e-9)
