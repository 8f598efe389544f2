"""Max-value and joint entropy search, which are not robust."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.acquisition.joint_entropy_search import qJointEntropySearch
from botorch.acquisition.max_value_entropy_search import qMaxValueEntropy
from botorch.models import SingleTaskGP
from botorch.utils.transforms import normalize, unnormalize
from torch import Tensor

from benchmarks.baselines.non_robust import NonRobustStrategy
from botorch_res.checks import at_least
from botorch_res.optim.robust_optima.ascent import advance, begin
from botorch_res.sampling import BatchFunction, draw_fourier_samples
from botorch_res.strategies import register_strategy

# The search for the maxima of sampled functions: starts for each, rounds of the ascent.
NUM_STARTS = 4
NUM_ROUNDS = 10


@register_strategy("max_value_entropy")
@dataclass(eq=False, kw_only=True)
class MaxValueEntropyStrategy(NonRobustStrategy):
    """Propose the point that tells most about the plain optimal value.

    Imagined observations are the cost of BoTorch's estimate. The default is a quarter
    of BoTorch's, which moves a proposal by less than a hundredth of the domain's width.

    Attributes:
        num_optima: The number of sampled optimal values, of all members of an ensemble
            together, rounded up to a multiple of these.
        num_y_samples: The number of imagined observations at a candidate.
        num_points: The number of points on which optimal values are sampled.
    """

    num_optima: int = at_least(1, 100)
    num_y_samples: int = at_least(1, 32)
    num_points: int = at_least(1, 1024)
    batch_limit = 256
    max_members = 4
    max_pairs = 4096

    def _build(
        self,
        model: SingleTaskGP,
        points: Tensor,
        bounds: Tensor,
        X_pending: Tensor | None,
        num_members: int,
    ) -> AcquisitionFunction:
        return qMaxValueEntropy(
            model,
            points,
            num_mv_samples=math.ceil(self.num_optima / num_members),
            num_y_samples=self.num_y_samples,
            X_pending=X_pending,
        )


@register_strategy("joint_entropy_search")
@dataclass(eq=False, kw_only=True)
class JointEntropySearchStrategy(NonRobustStrategy):
    """Propose the point that tells most about the plain optimum, place and value.

    In BoTorch 0.18.1 ``qJointEntropySearch`` transforms the optimal inputs twice when
    the model carries an input transform. It is therefore given unit-cube data, and a
    model without transforms, so that it is compared at its best.

    Attributes:
        num_optima: The number of sampled optima, of all members of an ensemble
            together, rounded up to a multiple of these.
        num_points: The number of points from which the search for them starts.
    """

    num_optima: int = at_least(1, 64)
    num_points: int = at_least(1, 1024)
    batch_limit = 512
    max_members = 4
    max_pairs = 2048

    def _build(
        self,
        model: SingleTaskGP,
        points: Tensor,
        bounds: Tensor,
        X_pending: Tensor | None,
        num_members: int,
    ) -> AcquisitionFunction:
        seed = int(torch.randint(2**31, ()))
        count = math.ceil(self.num_optima / num_members)
        samples = draw_fourier_samples(model, count, seed=seed)
        movable = torch.ones_like(points[0], dtype=torch.bool)
        if self.domain.x.is_finite:
            movable[list(self.domain.x.columns)] = False
        if self.domain.theta.is_finite:
            movable[list(self.domain.theta.columns)] = False
        inputs, outputs = sampled_maxima(samples, points, bounds, movable)
        return qJointEntropySearch(model, inputs, outputs, X_pending=X_pending)


def sampled_maxima(
    samples: BatchFunction, points: Tensor, bounds: Tensor, movable: Tensor
) -> tuple[Tensor, Tensor]:
    """Find the maxima of functions: the best of many points, improved by ascents.

    Args:
        samples: ``C`` functions.
        points: ``n x d`` points.
        bounds: ``2 x d`` bounds of the maxima.
        movable: ``d`` booleans: the columns in which the maxima may leave the points.

    Returns:
        The ``C x d`` maxima and their ``C x 1`` values.
    """

    def each_its_own(u: Tensor) -> Tensor:
        # From steps x functions x starts to functions x points of each, and back.
        z = unnormalize(u.transpose(0, 1).flatten(1, 2), bounds)
        values: Tensor = samples(z).unflatten(1, (len(u), -1))
        return values.transpose(0, 1)

    with torch.no_grad():
        best = samples(points).topk(min(NUM_STARTS, len(points)), dim=-1)
    starts = normalize(points[best.indices], bounds)
    state = begin(each_its_own, starts, movable)
    state = advance(each_its_own, state, movable, NUM_ROUNDS, finish=True)
    top = state.values.argmax(dim=-1, keepdim=True)
    maxima = state.points.take_along_dim(top.unsqueeze(-1), dim=-2).squeeze(-2)
    inputs: Tensor = unnormalize(maxima, bounds)
    return inputs, state.values.take_along_dim(top, dim=-1)
