"""The number of operations that reach the dispatcher.

This is the noise-free measure of cost on a device on which launching operations takes
most of the time: it must not grow with the sizes of batches. Work is therefore cut into
pieces as it is there, and not as a processor's caches would have it.
"""

from __future__ import annotations

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from botorch_res.sampling import memory


class OperationCount(TorchDispatchMode):
    """Counts operations while it is entered.

    Attributes:
        count: All operations so far.
        without_views: Those of them that compute something.
    """

    def __init__(self) -> None:
        """Start at zero."""
        super().__init__()
        self.count = 0
        self.without_views = 0

    def __enter__(self) -> OperationCount:
        """Begin to count."""
        self.cached = memory.CACHED_ELEMENTS
        memory.CACHED_ELEMENTS = memory.MAX_ELEMENTS
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        """End."""
        super().__exit__(*error)
        memory.CACHED_ELEMENTS = self.cached

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run an operation and count it."""
        self.count += 1
        self.without_views += not func.is_view
        return func(*args, **(kwargs or {}))
