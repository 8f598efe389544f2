from fractions import Fraction

import torch
from hypothesis import given
from hypothesis import strategies as st

from botorch_res.probability.double_precision import two_difference, two_product

NUMBERS = st.floats(-1e60, 1e60).filter(lambda x: x == 0.0 or abs(x) > 1e-60)


@given(NUMBERS, NUMBERS)
def test_value_plus_error_is_exact(a: float, b: float) -> None:
    first, second = (torch.tensor(x, dtype=torch.float64) for x in (a, b))
    value, error = (x.item() for x in two_difference(first, second))
    assert Fraction(value) + Fraction(error) == Fraction(a) - Fraction(b)
    value, error = (x.item() for x in two_product(first, second))
    assert Fraction(value) + Fraction(error) == Fraction(a) * Fraction(b)
