"""Studies: ask, tell, recommend; with parameters, trials, storage and a runner."""

from botorch_res.study.optimizer import RobustOptimizer
from botorch_res.study.parameters import Choice, Integer, Range
from botorch_res.study.space import ParameterSpace

__all__ = ["Choice", "Integer", "ParameterSpace", "Range", "RobustOptimizer"]
