"""A stand-in for the context of an ``autograd.Function``."""

from torch import Tensor


class FakeContext:
    saved_tensors: tuple[Tensor | None, ...]

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        self.saved_tensors = tensors

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Accept what only the engine needs."""
