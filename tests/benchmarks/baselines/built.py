"""The acquisition functions of baselines on the finite problem of the textbook."""

import torch

from botorch_res.seeding import seeded
from botorch_res.strategies import make_strategy
from tests.strategies.options import QUICK
from tests.strategies.textbook import DOMAIN, FLAT, MODEL


def built(name, X, Y, maximize, **options):
    """BoTorch's acquisition function, and its values at all pairs.

    The proposal has to be the best of them.
    """
    strategy = make_strategy(
        name,
        DOMAIN,
        maximize=maximize,
        model_factory=MODEL,
        **{**QUICK[name], "num_points": 1000, **options},
    )
    with seeded(5):
        acqf = strategy.acquisition_function(X, Y, None, X[:0], seed=5)
    with torch.no_grad():
        value = acqf(FLAT.unsqueeze(-2))
    assert torch.equal(strategy.propose(X, Y, seed=5)[0], FLAT[value.argmax()])
    return acqf.acquisition_functions[0], value
