"""Functions drawn from a GP posterior, and batches of functions in general."""

from botorch_res.sampling.batch_function import (
    BatchFunction,
    CallableFunction,
    Derivatives,
    as_batch_function,
)
from botorch_res.sampling.expansion import Expansion
from botorch_res.sampling.fourier import draw_fourier_samples
from botorch_res.sampling.function_sum import FunctionSum
from botorch_res.sampling.posterior_mean import posterior_mean

__all__ = [
    "BatchFunction",
    "CallableFunction",
    "Derivatives",
    "Expansion",
    "FunctionSum",
    "as_batch_function",
    "draw_fourier_samples",
    "posterior_mean",
]
