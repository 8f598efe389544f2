"""Named parameters with units: ranges, whole numbers, lists of numbers and of names."""

from botorch_res.study.parameters.kinds import Choice, Integer, Range
from botorch_res.study.parameters.parameter import Parameter, Value

__all__ = ["Choice", "Integer", "Parameter", "Range", "Value"]
