"""Small numbers where a strategy has a choice, for tests that are not about quality."""

SEARCH = {"num_restarts": 2, "raw_samples": 16}
QUICK = {
    "res": {"num_samples": 2, **SEARCH},
    "worst_case_nei": {"num_thetas": 8, "num_samples": 16, **SEARCH},
    "expected_improvement": SEARCH,
    "upper_confidence_bound": SEARCH,
    "max_value_entropy": {"num_y_samples": 8, "num_points": 64, **SEARCH},
    "joint_entropy_search": {"num_optima": 8, "num_points": 64, **SEARCH},
    "knowledge_gradient": {"num_fantasies": 4, "num_points": 32, **SEARCH},
}
