"""What a sample says about several outputs, from its values alone.

The variances that follow come from rejection sampling. Problems are small: one x, few
thetas, a handful of observations.
"""

import math

import torch
from botorch.models import ModelListGP, SingleTaskGP
from gpytorch.means import ZeroMean
from torch import Tensor

from botorch_res import RobustDomain, qRobustEntropySearch
from tests import problems
from tests.acquisition.truncated_draws import draws_within
from tests.problems import DOUBLE, Draws, line, make_kernel, unit_domain

NUM_THETAS = 5
NOISE = 1e-2


def make_output(t: int, seed: int, lengthscale: float = 0.3) -> SingleTaskGP:
    """A GP whose data are a draw from its own prior."""
    draws = Draws(seed)
    X = Draws(t).uniform(t, 2)
    kernel = make_kernel(lengthscale=lengthscale, outputscale=1.0)
    covariance = kernel(X).to_dense().detach() + NOISE * torch.eye(t, **DOUBLE)
    Y = torch.linalg.cholesky(covariance) @ draws.normal(t, 1)
    return problems.make_model(X, Y, NOISE, kernel, mean_module=ZeroMean())


def make_list(t: int, seed: int, num_outputs: int = 2, **options) -> ModelListGP:
    outputs = [make_output(t, 10 * seed + i, **options) for i in range(num_outputs)]
    return ModelListGP(*outputs)


def finite_thetas() -> RobustDomain:
    return unit_domain(1, 1, theta_choices=line(NUM_THETAS))


def make_acqf(model, domain, constraints, **options) -> qRobustEntropySearch:
    defaults = {"maximize": False, "num_samples": 4, "seed": 0}
    return qRobustEntropySearch(
        model, domain, constraints=constraints, **(defaults | options)
    )


def points_of(n: int, seed: int) -> Tensor:
    return Draws(seed).uniform(n, 1, 2)


class Statements:
    """What one sample says, from its values alone, with few thetas.

    A channel is ``(output, sign, bound)``; the objective has the bound ``None``.
    """

    def __init__(self, acqf, channels, z):
        self.acqf, self.channels, self.z = acqf, channels, z
        self.x = acqf.robust_settings[0]
        violation = [float(v.max()) for v in self.tables(self.x)[1:]]
        self.is_feasible = max(violation) <= 0.0
        # The values of samples at data count, too: none of them is better here.
        self.least = [float(self.tables(self.x)[0].max())]
        self.least += [max(0.0, *violation)] * len(violation)

    def tables(self, x):
        """The values of each channel over all thetas."""
        points = torch.cat([x.expand(NUM_THETAS, 1), line(NUM_THETAS)], dim=-1)
        tables = []
        for output, sign, bound in self.channels:
            values = self.acqf.outputs[output].samples(points)[0]
            tables.append(values if bound is None else sign * (values - bound))
        return tables

    def known(self, x):
        """The channel of which something is known at a setting."""
        violation = [float(v.max()) for v in self.tables(x)[1:]]
        if self.is_feasible and max(violation) <= 0.0:
            return 0
        return 1 + max(range(len(violation)), key=violation.__getitem__)

    def intervals(self, output):
        """Points, lower and upper bounds of an output; the candidate is the first."""
        data = self.acqf.outputs[output].view.original_inputs
        found = [(self.z[0], -math.inf, math.inf)]
        is_all = self.acqf.target.name == "characteristics"
        for number, (own, sign, bound) in enumerate(self.channels):
            if own != output:
                continue
            level = 0.0 if bound is None else bound
            add = self.adder(found, sign, level)
            for point in torch.cat([self.z, data]):
                table = self.tables(point[:1])[number]
                place, worst = int(table.argmax()), float(table.max())
                is_known = self.known(point[:1]) == number
                lower = self.least[number] if is_known else -math.inf
                upper = worst if is_all else math.inf
                add(torch.cat([point[:1], line(NUM_THETAS)[place]]), lower, upper)
                # Another theta, which nature cannot choose, can be worse.
                if is_all and bool((line(NUM_THETAS) == point[1]).any()):
                    add(point, -math.inf, worst)
            if is_all:
                continue
            if number == 0 and not self.is_feasible:
                continue
            values, places = self.tables(self.x)[number].topk(2)
            for value, place in zip(values.tolist(), places.tolist(), strict=True):
                least = self.least[number]
                ties = value > least - 0.01
                pinned = ties and (number == 0) == self.is_feasible
                point = torch.cat([self.x, line(NUM_THETAS)[place]])
                add(point, value if pinned else -math.inf, least)
        return found

    def adder(self, found, sign, level):
        def add(point, lower, upper):
            ends = sorted((level + sign * lower, level + sign * upper))
            found.append((point, *ends))

        return add

    def draws(self, output, seed):
        """Draws of the output at the candidate."""
        model = self.acqf.model.models[output]
        found = self.intervals(output)
        points = torch.stack([point for point, _, _ in found])
        lower, upper = torch.tensor([ends for _, *ends in found], **DOUBLE).T
        joint = model.posterior(points)
        mean = joint.mean.detach().squeeze(-1)
        covariance = joint.mvn.covariance_matrix.detach()
        covariance = covariance + 1e-9 * torch.eye(len(mean), **DOUBLE)
        known = upper - lower < 1e-2
        known &= lower.isfinite()
        gain = torch.linalg.solve(covariance[known][:, known], covariance[known]).mT
        mean = mean + gain @ (upper - mean)[known]
        covariance = covariance - gain @ covariance[known]
        free = ~known
        parts = (mean[free], covariance[free][:, free], lower[free], upper[free])
        return draws_within(*parts, 0, seed)


def errors_of(limits, seeds, target="optimum", t=3):
    """Relative errors of ``v_c`` against rejection sampling, and what they are of."""
    errors, kinds = [], []
    for seed in seeds:
        model = make_list(t + seed % 2, seed)
        lower, upper = limits
        constraints = {1: (lower, upper)}
        acqf = make_acqf(
            model, finite_thetas(), constraints, num_samples=1, target=target, seed=seed
        )
        z = points_of(1, 500 + seed)
        z[..., 1] = line(NUM_THETAS)[seed % NUM_THETAS]
        channels = [(0, 1.0, None)]
        channels += [
            (1, s, b) for s, b in ((-1.0, lower), (1.0, upper)) if b is not None
        ]
        statements = Statements(acqf, channels, z.squeeze(-2))
        variances = acqf._variances(z)
        for output, (_, conditional) in enumerate(variances):
            draws = statements.draws(output, seed)
            # With fewer the Monte Carlo error itself would be more than 5 %.
            if len(draws) >= 1000:
                errors.append(abs(float(conditional) / float(draws.var()) - 1.0))
                kinds.append(statements.is_feasible)
    return torch.tensor(errors), kinds
