"""Methods that are not robust, to compare with: BoTorch's own acquisition functions.

They look for the plain optimum over all of ``z``. Importing this package makes them
known to ``make_strategy``: ``"expected_improvement"``, ``"upper_confidence_bound"``,
``"max_value_entropy"``, ``"knowledge_gradient"`` and ``"joint_entropy_search"``.
"""

from benchmarks.baselines.analytic import (
    ExpectedImprovementStrategy,
    UpperConfidenceBoundStrategy,
)
from benchmarks.baselines.entropy_search import (
    JointEntropySearchStrategy,
    MaxValueEntropyStrategy,
)
from benchmarks.baselines.knowledge_gradient import KnowledgeGradientStrategy
from benchmarks.baselines.non_robust import NonRobustStrategy

__all__ = [
    "ExpectedImprovementStrategy",
    "JointEntropySearchStrategy",
    "KnowledgeGradientStrategy",
    "MaxValueEntropyStrategy",
    "NonRobustStrategy",
    "UpperConfidenceBoundStrategy",
]
