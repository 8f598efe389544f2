"""The strategies, and small numbers for tests that are not about quality."""

from botorch_res.strategies import available_strategies, base

SEARCH = {"num_restarts": 2, "raw_samples": 16}
QUICK = {
    "res": {"num_samples": 2, **SEARCH},
    "worst_case_nei": {"num_thetas": 8, "num_samples": 16, **SEARCH},
    # Of the benchmarks.
    "expected_improvement": SEARCH,
    "upper_confidence_bound": SEARCH,
    "max_value_entropy": {"num_y_samples": 8, "num_points": 64, **SEARCH},
    "joint_entropy_search": {"num_optima": 8, "num_points": 64, **SEARCH},
    "knowledge_gradient": {"num_fantasies": 4, "num_points": 32, **SEARCH},
}


def registered_by(package):
    """The names that a package registers, whatever else has been imported."""
    return [
        name
        for name in available_strategies()
        if base._STRATEGIES[name].__module__.startswith(f"{package}.")
    ]


NAMES = registered_by("botorch_res")
