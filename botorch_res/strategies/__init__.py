"""Strategies: given data and a domain, propose the next points and recommend.

``make_strategy`` builds them by name:

- ``"res"``: Robust Entropy Search.
- ``"stable_opt"``: optimistic ``x``, pessimistic ``theta``; ``sqrt_beta`` is 2 unless
  told otherwise.
- ``"thompson"``: the robust optimum of a function drawn from the posterior.
- ``"worst_case_nei"``: expected improvement of the worst case, by BoTorch's risk
  measures.
- ``"random"``: points that are spread at random, to compare with.

``register_strategy`` adds others.
"""

from botorch_res.strategies.base import (
    Strategy,
    available_strategies,
    make_strategy,
    register_strategy,
)
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
    "RandomStrategy",
    "Recommendation",
    "RobustEntropySearchStrategy",
    "StableOptStrategy",
    "Strategy",
    "ThompsonStrategy",
    "WorstCaseBand",
    "WorstCaseImprovementStrategy",
    "available_strategies",
    "make_strategy",
    "propose_replicates",
    "recommend_replicates",
    "register_strategy",
    "supports_replicates",
]
