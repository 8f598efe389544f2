import math

import pytest
import torch
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood

from botorch_res.models.diagnostics import LeaveOneOut, leave_one_out
from botorch_res.models.fitting import BayesianGP, DefaultGP
from tests.problems import RAW as BOUNDS
from tests.problems import Draws, make_model

UNIT = Draws(0).uniform(9, 2)
X = torch.lerp(*BOUNDS, UNIT)
Y = 1e3 * ((4 * UNIT[:, :1]).sin() + UNIT[:, 1:].square()) + 5e3


def without(model, i):
    """The same model, hyperparameters and scaling, built without observation i."""
    keep = [j for j in range(9) if j != i]
    Yvar, likelihood = None, model.likelihood
    if isinstance(likelihood, FixedNoiseGaussianLikelihood):
        Yvar = likelihood.noise.unsqueeze(-1) * model.outcome_transform.stdvs**2
        Yvar, likelihood = Yvar[..., keep, :], None
    return type(model)(
        X[keep].expand(*model.batch_shape, 8, 2),
        Y[keep].expand(*model.batch_shape, 8, 1),
        Yvar,
        likelihood=likelihood,
        covar_module=model.covar_module,
        mean_module=model.mean_module,
        input_transform=model.input_transform,
        outcome_transform=model.outcome_transform,
    ).eval()


@pytest.mark.parametrize(
    "factory", [DefaultGP(), BayesianGP(num_samples=3, num_steps=10)]
)
@pytest.mark.parametrize("given_noise", [True, False])
def test_equals_brute_force(factory, given_noise):
    Yvar = torch.full_like(Y, 30.0**2) if given_noise else None
    model = factory(X, Y, Yvar, BOUNDS)
    found = leave_one_out(model)
    torch.testing.assert_close(found.observed, Y.squeeze(-1))
    for i in range(9):
        with torch.no_grad():
            posterior = without(model, i).posterior(X[i : i + 1])
            noise = (
                torch.tensor(900.0)
                if given_noise
                else model.likelihood.noise.squeeze(-1)
                * model.outcome_transform.stdvs.reshape(-1) ** 2
            )
            # Moments of the mixture from its members, one by one.
            means = posterior.mean.reshape(-1)
            variances = posterior.variance.reshape(-1) + noise
            mean = means.mean()
            variance = variances.mean() + means.var(correction=0).nan_to_num()
        torch.testing.assert_close(found.mean[i], mean, rtol=1e-6, atol=0)
        torch.testing.assert_close(
            found.variance[i], variance.squeeze(), rtol=1e-4, atol=0
        )


def test_one_observation():
    found = leave_one_out(DefaultGP()(X[:1], Y[:1], None, BOUNDS))
    assert found.observed.shape == found.mean.shape == (1,)
    assert found.variance > 0


def test_scores():
    observed = torch.tensor([0.0, 1.0, 2.0, 3.0], dtype=torch.double)
    mean = torch.tensor([0.0, 1.5, 2.0, 13.0], dtype=torch.double)
    variance = torch.tensor([1.0, 0.25, 4.0, 1.0], dtype=torch.double)
    found = LeaveOneOut(observed, mean, variance)
    assert found.residual.tolist() == [0.0, -1.0, 0.0, -10.0]
    assert found.coverage == 0.75
    expected = torch.distributions.Normal(mean, variance.sqrt()).log_prob(observed)
    assert found.log_score == pytest.approx(float(expected.mean()))
    assert found.explained == pytest.approx(1 - 100.25 / 5.0)
    assert math.isfinite(found.log_score)


def test_a_model_of_the_user():
    found = leave_one_out(make_model(UNIT, Y))
    assert found.mean.shape == (9,)
