"""A proof, up to rounding, of a lower bound of ``min over x of g(x)``."""

import numpy as np


def proves_lower_bound(worst_case_bound, bounds, claim, splits=50, max_boxes=4_000_000):
    """Split boxes until none of them can hold a value below the claim.

    Args:
        worst_case_bound: Maps the centres and half-widths of boxes, ``n x d`` each, to
            ``n`` lower bounds of the worst-case value in these boxes.
        bounds: The ``2 x d`` bounds of ``x``.
        claim: The claimed lower bound.
        splits: How often the boxes are halved along every side.
        max_boxes: How many boxes may be left after a split.

    Returns:
        Whether all boxes were excluded.
    """
    lower, upper = np.asarray(bounds, dtype=float)
    centres, half = (lower + upper)[None] / 2, (upper - lower) / 2
    corners = np.stack(np.meshgrid(*[[-1, 1]] * len(half)), axis=-1)
    corners = corners.reshape(-1, len(half))
    for _ in range(splits):
        half = half / 2
        centres = (centres[:, None] + corners * half).reshape(-1, len(half))
        centres = centres[worst_case_bound(centres, half) < claim]
        if not len(centres):
            return True
        assert len(centres) <= max_boxes, f"{len(centres)} boxes of half-width {half}."
    return False
