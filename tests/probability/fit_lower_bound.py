"""Print the rational function of ``botorch_res.probability.lower_bound``.

Run ``python tests/probability/fit_lower_bound.py``: linearised least squares of the
relative error at Chebyshev points of ``s = 2 / (x + 2)`` in (0, 1), iterated.
"""

import mpmath as mp
from mpmath import mpf

DEGREES = (9, 10)
POINTS = 200
ITERATIONS = 8


def zeta(x: mpf) -> mpf:
    """``3 / (x + 4 / (x + ...))``, from the Mills ratio or, far out, as it stands."""
    if x > 200:
        value = mpf(0)
        for k in range(200, 2, -1):
            value = k / (x + value)
        return value
    mills = mp.sqrt(mp.pi / 2) * mp.erfc(x / mp.sqrt(2)) * mp.exp(x * x / 2)
    excess = 1 / mills - x
    return 2 / (1 / excess - x) - x


def fit() -> tuple[list[mpf], list[mpf], mpf]:
    """Numerator, denominator, and the largest relative error."""
    top, bottom = DEGREES
    angles = [(2 * i + 1) * mp.pi / (2 * POINTS) for i in range(POINTS)]
    nodes = [(1 + mp.cos(angle)) / 2 for angle in angles]
    values = [zeta(2 / s - 2) * (2 / s) for s in nodes]
    scales = [mpf(1)] * POINTS
    for _ in range(ITERATIONS):
        matrix = mp.matrix(POINTS, top + 1 + bottom)
        target = mp.matrix(POINTS, 1)
        for i, (s, value, scale) in enumerate(zip(nodes, values, scales, strict=True)):
            weight = 1 / (value * scale)
            for j in range(top + 1):
                matrix[i, j] = weight * s**j
            for j in range(bottom):
                matrix[i, top + 1 + j] = -weight * value * s ** (j + 1)
            target[i] = weight * value
        solution = list(mp.lu_solve(matrix, target))
        numerator, denominator = solution[: top + 1], [mpf(1), *solution[top + 1 :]]
        scales = [abs(mp.polyval(denominator[::-1], s)) for s in nodes]
    error = max(
        abs(mp.polyval(numerator[::-1], s) / mp.polyval(denominator[::-1], s) / v - 1)
        for s, v in zip(nodes, values, strict=True)
    )
    return numerator, denominator, error


if __name__ == "__main__":
    with mp.workdps(60):
        numerator, denominator, error = fit()
        print(f"relative error {mp.nstr(error, 3)}")  # noqa: T201
        for name, table in (("numerator", numerator), ("denominator", denominator)):
            print(name, *(repr(float(c)) for c in table), sep="\n    ")  # noqa: T201
