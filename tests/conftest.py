import pytest
import torch
from hypothesis import settings

from botorch_res.seeding import seeded

torch.set_num_threads(1)
# The same examples in every run, however slow the machine is today.
settings.register_profile("reproducible", derandomize=True, deadline=None)
settings.load_profile("reproducible")
# Tests that several modules share.
pytest.register_assert_rewrite("tests.strategies.contract", "tests.strategies.runs")


@pytest.fixture(autouse=True)
def _same_numbers_in_any_order():
    with seeded(0):
        yield
