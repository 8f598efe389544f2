"""What a study is made of: parameters, trials, storage, and running experiments."""

from botorch_res.study.parameters import Choice, Integer, Range
from botorch_res.study.space import ParameterSpace

__all__ = ["Choice", "Integer", "ParameterSpace", "Range"]
