"""Random truncated bivariate normals of eight kinds, from benign to nasty.

The first variable has an upper bound only.
"""

import numpy as np

STRATA = (
    "a_benign",
    "b_tail",
    "c_deep",
    "d_corr",
    "e_thin",
    "f_res",
    "g_nasty",
    "h_inf",
)


def draw(
    stratum: str, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Draw mean, covariance, lower and upper bounds of a case of a stratum."""
    sigma = 10.0 ** rng.uniform(-1.0, 1.0, 2)
    rho = rng.uniform(-0.9, 0.9)
    lower = rng.uniform(-2.0, 1.9, 2)
    upper = lower + rng.uniform(0.05, 2.0 - lower)
    near_one = rng.choice((-1.0, 1.0)) * (1.0 - 10.0 ** rng.uniform(-12.0, -1.0))
    if stratum in ("b_tail", "c_deep"):
        depth = (3.0, 10.0) if stratum == "b_tail" else (10.0, 40.0)
        far = rng.integers(0, 3)
        for i in {0: (0,), 1: (1,), 2: (0, 1)}[int(far)]:
            lower[i] = rng.uniform(*depth)
            upper[i] = np.inf if rng.random() < 0.5 else lower[i] + rng.uniform(0.05, 3)
            if rng.random() < 0.5:
                lower[i], upper[i] = -upper[i], -lower[i]
    elif stratum == "d_corr":
        rho = near_one
        if rng.random() < 0.5:
            lower[0] = -np.inf
        elif rng.random() < 0.5:
            upper[0] = np.inf
    elif stratum == "e_thin":
        upper[1] = lower[1] + 10.0 ** rng.uniform(-8.0, -1.0)
        if rng.random() < 0.5:
            lower[0] = -np.inf
    elif stratum == "g_nasty":
        # A corner near the ridge, deep in its tail, thin in both directions.
        rho = near_one
        spread = np.sqrt(1.0 - rho**2)
        lower[1] = rng.uniform(-10.0, 10.0)
        lower[0] = rho * lower[1] + spread * rng.uniform(-10.0, 10.0)
        upper = lower + 10.0 ** rng.uniform(-8.0, 0.0, 2)
        if rng.random() < 0.5:
            lower[0], upper[0] = -np.inf, lower[0]
    elif stratum == "h_inf":
        rho = rng.uniform(-0.99, 0.99)
        lower, upper = 3.0 * lower, 3.0 * lower + 10.0 ** rng.uniform(-1.0, 1.0, 2)
        lower[rng.random(2) < 0.6] = -np.inf
        upper[rng.random(2) < 0.6] = np.inf
    mean = rng.normal(size=2) * sigma
    lower, upper = mean + sigma * lower, mean + sigma * upper
    if stratum == "f_res":
        # Two nearly equal variables, below g, and the second above f*.
        scale = 10.0 ** rng.uniform(-3.0, 3.0)
        sigma = scale * 10.0 ** rng.uniform(-1.0, 0.0, 2)
        rho = near_one if rng.random() < 0.7 else rho
        mean = scale * rng.normal(size=2)
        bound = mean[1] + sigma[1] * rng.uniform(-4.0, 4.0)
        upper = np.array([bound, bound])
        lower = np.array([-np.inf, bound - sigma[1] * 10.0 ** rng.uniform(-7.0, 1.0)])
    # The first variable has an upper bound only: one of its two bounds, tails and all.
    if np.isfinite(lower[0]) and (np.isinf(upper[0]) or rng.random() < 0.5):
        upper[0] = lower[0]
    lower[0] = -np.inf
    cross = rho * sigma.prod()
    covariance = np.array([[sigma[0] ** 2, cross], [cross, sigma[1] ** 2]])
    return mean, covariance, lower, upper
