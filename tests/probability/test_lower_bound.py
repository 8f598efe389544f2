import mpmath as mp
import pytest
import torch
from mpmath_oracle import DIGITS, standard_interval

from botorch_res.probability.lower_bound import moments_above

BOUNDS = [0.0, -0.0, 1e-9, -1e-9, 0.3, -0.3, 1.0, -1.0, 2.5, -2.5, 5.0, -5.0, 8.0, -8.0]
BOUNDS += [*torch.linspace(-37.0, 40.0, 60).tolist(), 1e2, 1e3, 1e4]


@pytest.mark.parametrize("x", BOUNDS)
def test_moments_above_equal_mpmath(x: float) -> None:
    tail = moments_above(torch.tensor([x], dtype=torch.float64))
    with mp.workdps(DIGITS):
        prob, mean, variance = standard_interval(mp.mpf(x), mp.inf)
        hazard = mp.exp(-(mp.mpf(x) ** 2) / 2) / mp.sqrt(2 * mp.pi) / prob
        excess = mean - mp.mpf(x)
        expected = {
            "scaled_prob": prob * mp.exp(max(mp.mpf(x), 0) ** 2 / 2),
            "hazard": hazard,
            "offset": mean - max(mp.mpf(x), 0),
            "variance": variance,
            # The variance falls by the third moment, and by the law of the hazard.
            "third": hazard * (excess**2 - variance),
        }
        for name, value in expected.items():
            error = abs(mp.mpf(getattr(tail, name).item()) / value - 1)
            # In the third moment the fit's error of 4e-15 counts several times. Below
            # zero the hazard is a density, and amplifies the rounding of its exponent.
            tolerance = 5e-14 if name == "third" else 1e-14
            assert error < tolerance * max(1.0, 0.1 * x * x if x < 0.0 else 0.0), name


def test_moments_above_are_finite_to_the_end() -> None:
    x = torch.tensor([-1e60, -1e50, -100.0, 1e6, 1e50, 1e60], dtype=torch.float64)
    tail = moments_above(x)
    assert all(moment.isfinite().all() for moment in tail)
    torch.testing.assert_close(tail.variance[:3], torch.ones(3, dtype=torch.float64))
    torch.testing.assert_close(
        tail.variance[3:] * x[3:].square(), torch.ones(3, dtype=torch.float64)
    )
