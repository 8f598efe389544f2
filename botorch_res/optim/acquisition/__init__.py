"""The maximum of an acquisition function over a robust domain."""
