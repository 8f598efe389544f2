"""Strategies: given data and a domain, propose the next points and recommend.

``make_strategy`` builds them by name. Those that look for the robust optimum:

- ``"res"``: Robust Entropy Search.
- ``"stable_opt"``: optimistic ``x``, pessimistic ``theta``; ``sqrt_beta`` is 2 unless
  told otherwise.
- ``"thompson"``: the robust optimum of a function drawn from the posterior.
- ``"worst_case_nei"``: expected improvement of the worst case, by BoTorch's risk
  measures.

Those that look for the plain optimum over all of ``z``, with BoTorch's own acquisition
functions, to compare with: ``"expected_improvement"``, ``"upper_confidence_bound"``,
``"max_value_entropy"``, ``"knowledge_gradient"``, ``"joint_entropy_search"``. And
``"random"``, which looks for nothing.
"""

from botorch_res.strategies.analytic import (
    ExpectedImprovementStrategy,
    UpperConfidenceBoundStrategy,
)
from botorch_res.strategies.base import (
    Strategy,
    available_strategies,
    make_strategy,
    register_strategy,
)
from botorch_res.strategies.entropy_search import (
    JointEntropySearchStrategy,
    MaxValueEntropyStrategy,
)
from botorch_res.strategies.knowledge_gradient import KnowledgeGradientStrategy
from botorch_res.strategies.non_robust import NonRobustStrategy
from botorch_res.strategies.random import RandomStrategy
from botorch_res.strategies.recommendation import Recommendation, WorstCaseBand
from botorch_res.strategies.replicates import (
    propose_replicates,
    recommend_replicates,
    supports_replicates,
)
from botorch_res.strategies.robust_entropy_search import RobustEntropySearchStrategy
from botorch_res.strategies.stable_opt import StableOptStrategy
from botorch_res.strategies.thompson import ThompsonStrategy
from botorch_res.strategies.worst_case_improvement import WorstCaseImprovementStrategy

__all__ = [
    "ExpectedImprovementStrategy",
    "JointEntropySearchStrategy",
    "KnowledgeGradientStrategy",
    "MaxValueEntropyStrategy",
    "NonRobustStrategy",
    "RandomStrategy",
    "Recommendation",
    "RobustEntropySearchStrategy",
    "StableOptStrategy",
    "Strategy",
    "ThompsonStrategy",
    "UpperConfidenceBoundStrategy",
    "WorstCaseBand",
    "WorstCaseImprovementStrategy",
    "available_strategies",
    "make_strategy",
    "propose_replicates",
    "recommend_replicates",
    "register_strategy",
    "supports_replicates",
]
