"""Strategies: given data and a domain, propose the next points and recommend."""

from botorch_res.strategies.base import (
    Strategy,
    available_strategies,
    make_strategy,
    register_strategy,
)
from botorch_res.strategies.random import RandomStrategy
from botorch_res.strategies.recommendation import Recommendation, WorstCaseBand
from botorch_res.strategies.robust_entropy_search import RobustEntropySearchStrategy
from botorch_res.strategies.thompson import ThompsonStrategy

__all__ = [
    "RandomStrategy",
    "Recommendation",
    "RobustEntropySearchStrategy",
    "Strategy",
    "ThompsonStrategy",
    "WorstCaseBand",
    "available_strategies",
    "make_strategy",
    "register_strategy",
]
