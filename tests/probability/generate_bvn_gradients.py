"""Write ``tests/data/truncated_bvn_gradients.npz``: fresh cases with derivatives.

Run ``python tests/probability/generate_bvn_gradients.py``; it takes minutes. Each
case holds the moments, and their derivatives along a direction of each of the mean, the
covariance and the bounds, by central differences in multi-precision arithmetic. The
directions are scaled to the truncated distribution, and that of the covariance is
positive semi-definite and small enough to keep the matrix positive definite.
"""

from pathlib import Path

import numpy as np
from bvn_strata import STRATA, draw
from mpmath import mp, mpf
from mpmath_oracle import DIGITS, Moments, truncated_bvn

PATH = Path(__file__).parents[1] / "data" / "truncated_bvn_gradients.npz"
CASES = 100
STEP = mpf(10) ** -9


def flat(moments: Moments) -> list[mpf]:
    return [moments.log_prob, *moments.mean, *moments.covariance]


def directions(
    case: tuple[np.ndarray, ...], moments: Moments, rng: np.random.Generator
) -> list[tuple[np.ndarray, ...]]:
    covariance = case[1]
    spread = np.sqrt([float(moments.covariance[0]), float(moments.covariance[2])])
    sigma = np.sqrt(np.diag(covariance))
    remaining = 1.0 - (covariance[0, 1] / sigma.prod()) ** 2
    root = rng.normal(size=(2, 2)) * sigma[:, None]
    bounds = [
        np.where(np.isfinite(b), rng.normal(size=2) * spread, 0) for b in case[2:]
    ]
    none = np.zeros(2)
    return [
        (rng.normal(size=2) * spread, np.zeros((2, 2)), none, none),
        (none, remaining * root @ root.T, none, none),
        (none, np.zeros((2, 2)), *bounds),
    ]


def derivative(case: tuple[np.ndarray, ...], direction: tuple[np.ndarray, ...]) -> list:
    with mp.workdps(DIGITS):
        ends = []
        for sign in (-1, 1):
            moved = [
                np.vectorize(mpf, otypes=[object])(value)
                + sign * STEP * np.vectorize(mpf, otypes=[object])(step)
                for value, step in zip(case, direction, strict=True)
            ]
            ends.append(flat(truncated_bvn(*moved, order=24)))
        return [(b - a) / (2 * STEP) for a, b in zip(*ends, strict=True)]


def compute(case: tuple[np.ndarray, ...], rng: np.random.Generator) -> dict:
    moments = truncated_bvn(*case)
    steps = directions(case, moments, rng)
    slopes = [[float(x) for x in derivative(case, step)] for step in steps]
    names = ("mean", "covariance", "lower", "upper")
    return {
        **dict(zip(names, case, strict=True)),
        "moments": np.array([float(x) for x in flat(moments)]),
        **{
            f"step_{name}": np.array([step[i] for step in steps])
            for i, name in enumerate(names)
        },
        "slopes": np.array(slopes),
    }


def main() -> None:
    rng = np.random.default_rng(20240715)
    rows = [
        {"stratum": stratum, **compute(draw(stratum, rng), rng)}
        for stratum in STRATA
        for _ in range(CASES)
    ]
    arrays = {key: np.array([row[key] for row in rows]) for key in rows[0]}
    np.savez_compressed(PATH, **arrays)


if __name__ == "__main__":
    main()
