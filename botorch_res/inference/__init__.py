"""Approximate inference for Gaussian vectors with interval constraints."""

from botorch_res.inference.expectation_propagation import (
    EPResult,
    expectation_propagation,
)

__all__ = ["EPResult", "expectation_propagation"]
