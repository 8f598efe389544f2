r"""What is known of one output of a model, given each sample's target.

An output has one process and one or several channels. All that a sample says about the
output are intervals for single values: at the data, at the worst cases of its channels
there, and at the robust optimum. They become scalar sites of the process by expectation
propagation. At a candidate, the pair ``[c(x, theta), c(x, h(x))]`` of each channel is
truncated to the interval of its second value.
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import Module, ModuleList

from botorch_res.acquisition.channel import Channel, Ranked, intersect
from botorch_res.acquisition.targets import Intervals, LocalWorstCases, Target
from botorch_res.acquisition.truncation import tie_weights
from botorch_res.inference import expectation_propagation
from botorch_res.models import ExactGPView, PairPosterior, StagedGP
from botorch_res.sampling import BatchFunction

# Against a tolerance of 1e-6, this changes the acquisition function by less than 1e-4
# nats in most places, and after a hundred observations by up to 1e-2 in the worst. The
# error of expectation propagation itself is larger there.
EP_TOLERANCE = 1e-2
# The error of a posterior covariance, relative to the prior variance.
PSEUDO_NOISE = 1e-8
# Both of two worst cases count if the gap between them is less than this, in prior
# standard deviations. A safe choice: small against the differences that matter, but
# wide enough for the steps of an ascent.
TIE_WIDTH = 0.01


class Knowledge(NamedTuple):
    """What the samples say about one channel at the data and at the optimum.

    Attributes:
        partners: ``C x batch_shape x n x d`` worst cases ``(x_i, h_c(x_i))``.
        worst_value: ``C x batch_shape x n`` values there.
        least: ``C x batch_shape x n`` values that these reach at least, minus infinity
            where nothing is known.
        at_optimum: Points and bounds at the robust optimum, if any.
    """

    partners: Tensor
    worst_value: Tensor
    least: Tensor
    at_optimum: tuple[Tensor, Intervals] | None


class Output(Module):
    """One output of the model: its process and its channels.

    Attributes:
        view: The model of the output.
        samples: The ``C x batch_shape`` functions drawn from it.
        channels: The functions of the samples whose worst cases count.
        process: The model, conditioned on each sample's target.
        converged: ``C x batch_shape``, whether expectation propagation converged.
        num_sweeps: ``C x batch_shape``, the number of its sweeps.
    """

    view: ExactGPView
    samples: BatchFunction
    process: StagedGP
    converged: Tensor
    num_sweeps: Tensor

    def __init__(
        self, view: ExactGPView, samples: BatchFunction, channels: list[Channel]
    ) -> None:
        """Store the parts.

        Args:
            view: The model of the output.
            samples: The functions drawn from it.
            channels: The functions whose worst cases count.
        """
        super().__init__()
        self.view = view
        self.samples = samples
        self._channels = ModuleList(channels)
        for name in ("converged", "num_sweeps"):
            self.register_buffer(name, None)

    @property
    def channels(self) -> list[Channel]:
        """The functions whose worst cases count."""
        return [channel for channel in self._channels if isinstance(channel, Channel)]

    def points(self, pending: Tensor | None) -> Tensor:
        """The ``batch_shape x n x d`` observed and pending points.

        Args:
            pending: ``m x d`` pending points, if any.

        Returns:
            The points in the user's units.
        """
        points = self.view.original_inputs
        if pending is None:
            return points
        pending = pending.to(points).expand(*self.view.batch_shape, *pending.shape)
        return torch.cat([points, pending], dim=-2)

    def tie_width(self, points: Tensor) -> Tensor:
        """Differences of values below which these tie.

        Args:
            points: ``... x batch_shape x n x d`` points in the user's units.

        Returns:
            ``... x batch_shape x n`` differences.
        """
        prior = self.view.prior_variance(self.view.transform_inputs(points))
        return TIE_WIDTH * prior.detach().sqrt()

    def worst_cases_at(self, channel: Channel, x: Tensor) -> LocalWorstCases:
        """Find the local worst cases at each sample's robust optimum that can tie.

        Args:
            channel: The channel.
            x: ``C x batch_shape x d_x`` settings.

        Returns:
            The worst cases.
        """
        x = x.unsqueeze(-2)
        solver = channel.solver
        (theta, value), _ = solver.local_worst_cases(x, x.shape[-1] + 1)
        points = solver.domain.join(x.unsqueeze(-2), theta).squeeze(-3)
        return LocalWorstCases(points, value.squeeze(-2), self.tie_width(points))

    def condition(
        self, target: Target, pending: Tensor | None, known: list[Knowledge]
    ) -> None:
        """Condition the process on what is known of each sample.

        Args:
            target: The target.
            pending: ``m x d`` pending points, observed with the samples' own values.
            known: What is known of each channel.
        """
        view = self.view
        process: StagedGP = view
        observed = self.points(pending)
        if pending is not None:
            pending = pending.to(observed)
            copies = observed[..., -len(pending) :, :]
            noise = view.noise_at(copies).expand(copies.shape[:-1])
            process = process.with_observations(
                view.transform_inputs(copies), self.samples(pending), noise
            )
        points, intervals = [], []
        for channel, own in zip(self.channels, known, strict=True):
            points.append(own.partners)
            found = target.at_worst_cases(own.least, own.worst_value)
            intervals.append(channel.of_output(found))
            if own.at_optimum is not None:
                points.append(own.at_optimum[0])
                intervals.append(channel.of_output(own.at_optimum[1]))
        partners = view.transform_inputs(torch.cat(points, dim=-2))
        at_data = self._at_observations(target, observed, known)
        if at_data is None:
            mean, covariance = process.joint_posterior(partners)
        else:
            intervals.insert(0, at_data)
            mean, covariance = process.site_posterior(partners)
        lower, upper = (
            torch.cat(bounds, dim=-1) for bounds in zip(*intervals, strict=True)
        )
        # Each model has its own, so that other members of the batch do not change it.
        prior = view.prior_variance(partners).amax(dim=-1, keepdim=True)
        result = expectation_propagation(
            mean,
            covariance,
            lower=lower,
            upper=upper,
            pseudo_noise=PSEUDO_NOISE * prior.expand_as(mean),
            tolerance=EP_TOLERANCE,
        )
        self.process = process.with_sites(
            partners, result.site_precision, result.site_shift
        )
        self.converged = result.converged
        self.num_sweeps = result.num_sweeps

    def _at_observations(
        self, target: Target, points: Tensor, known: list[Knowledge]
    ) -> Intervals | None:
        """What is known about the values at the data, if anything."""
        domain = self.channels[0].solver.domain
        # A theta that nature cannot choose can be worse than the worst case.
        inside = domain.theta.contains(domain.split(points)[1])
        found = []
        for channel, own in zip(self.channels, known, strict=True):
            bounds = target.at_observations(
                torch.where(inside, own.worst_value, math.inf)
            )
            if bounds is not None:
                found.append(channel.of_output(bounds))
        return intersect(found) if found else None

    def variances(
        self,
        target: Target,
        points: Tensor,
        ranked: list[Ranked],
        optimal: list[Tensor],
        shares: list[Tensor] | None,
    ) -> tuple[Tensor, Tensor]:
        """Compute the variances ``v`` and ``v_c`` at candidates.

        Args:
            target: The target.
            points: ``batch_shape x n x d`` points in the user's units.
            ranked: The three worst local worst cases of each channel there.
            optimal: For each channel the ``C x batch_shape x 1`` values that the worst
                case reaches at least, if anything is known of it.
            shares: For each channel the ``C x batch_shape x n`` weight of what is known
                of it, from zero to one; ``None`` for one.

        Returns:
            ``batch_shape x n`` and ``C x batch_shape x n`` variances.
        """
        inputs = self.view.transform_inputs(points)
        width = TIE_WIDTH * self.view.prior_variance(inputs).detach().sqrt()
        result: list[tuple[Tensor, Tensor]] = []
        for i, (channel, own) in enumerate(zip(self.channels, ranked, strict=True)):
            pair = self._average_pair(inputs, own, width)
            given = channel.of_moments(pair.mean), pair.covariance
            bound = partial(_own_bound, channel, points, own.value[..., 0, :])
            worst = own.value[..., 0, :]
            variance = target.at_candidate(*given, optimal[i], worst, bound)
            if shares is not None:
                nothing = torch.full_like(optimal[i], -math.inf)
                without = target.at_candidate(*given, nothing, worst, bound)
                variance = torch.lerp(without, variance, shares[i])
            if result:
                # A second bound of an output leaves a share of what the first left.
                tiny = torch.finfo(variance.dtype).tiny ** 0.5
                unknown = pair.covariance[..., 0, 0].clamp_min(0.0) + tiny
                variance = result[-1][1] * (variance / unknown)
            result.append((pair.previous_variance.clamp_min(0.0), variance))
        return result[-1]

    def _average_pair(
        self, inputs: Tensor, ranked: Ranked, width: Tensor
    ) -> PairPosterior:
        """Moments of candidates and their worst cases, averages where these tie."""
        weights = tie_weights(ranked.value, ranked.depth, width)
        partners = ranked.points[..., :2, :, :].flatten(-3, -2)
        mean, covariance, prior = self.process.pair_posterior(
            inputs, self.view.transform_inputs(partners)
        )
        shape = weights.shape[-2:]
        mean = (weights.unsqueeze(-1) * mean.unflatten(-2, shape)).sum(dim=-3)
        covariance = weights[..., None, None] * covariance.unflatten(-3, shape)
        return PairPosterior(mean, covariance.sum(dim=-4), prior[..., : shape[-1]])


def _own_bound(channel: Channel, points: Tensor, worst_value: Tensor) -> Tensor:
    """The worst-case value, and infinity if nature cannot choose theta."""
    # A theta that nature cannot choose can be worse than the worst case.
    domain = channel.solver.domain
    _, theta = domain.split(points)
    return torch.where(domain.theta.contains(theta), worst_value, math.inf)
