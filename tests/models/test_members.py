import pytest
import torch
from botorch.exceptions.errors import UnsupportedError
from gpytorch.means import LinearMean

from botorch_res import RobustDomain
from botorch_res.models import BayesianGP, DefaultGP, ExactGPView
from botorch_res.models.members import members
from tests.problems import RAW, make_model

BOUNDS = RAW.flip(1)
DOMAIN = RobustDomain(BOUNDS, [0])


def data(t=6):
    X = DOMAIN.sample(t, seed=0)
    return X, 50.0 + 7.0 * (X / 5).sin().sum(dim=-1, keepdim=True)


@pytest.mark.parametrize("negate", [False, True])
@pytest.mark.parametrize("factory", [DefaultGP(), BayesianGP(3, 5)])
def test_posteriors_are_those_of_the_model(factory, negate):
    """In the model's space, less the prior mean."""
    model = factory(*data(), None, BOUNDS)
    view = ExactGPView(model, negate=negate, model_units=True)
    points = DOMAIN.sample(9, seed=1)
    expected = model.posterior(points)
    scale = model.outcome_transform.stdvs.flatten()[0]
    offset = model.outcome_transform.means.flatten()[0]
    sign = -1.0 if negate else 1.0
    inputs = view.transform_inputs(points)
    prior = view.prior_mean(inputs).reshape(-1, 9)
    mean = sign * (expected.mean.reshape(-1, 9) - offset) / scale - prior
    variance = expected.variance.reshape(-1, 9) / scale.square()
    singles = members(view)
    assert len(singles) == len(mean) == max(1, view.batch_shape.numel())
    for i, single in enumerate(singles):
        own = inputs.reshape(-1, 9, 2)[0]
        found = single.posterior(own)
        torch.testing.assert_close(found.mean.flatten(), mean[i])
        torch.testing.assert_close(found.variance.flatten(), variance[i])
        assert not any(p.requires_grad for p in single.parameters())


@pytest.mark.parametrize("factory", [DefaultGP(), BayesianGP(3, 5)])
def test_members_with_categories(factory):
    X, Y = data()
    X[:, 0] = torch.tensor([0.0, 5.0, 100.0]).to(X).repeat(2)
    model = factory(X, Y, None, BOUNDS, cat_dims=[0])
    view = ExactGPView(model, model_units=True)
    inputs = view.transform_inputs(X[:5] + torch.tensor([0.0, 1.0]).to(X))
    for i, single in enumerate(members(view)):
        covariance = view.prior_covariance(inputs, view.train_inputs)
        mean = (covariance @ view.mean_weights).reshape(-1, 5)[i]
        torch.testing.assert_close(single.posterior(inputs).mean.flatten(), mean)


def test_prior_mean_must_be_constant():
    X, Y = data()
    model = make_model(X, Y, bounds=BOUNDS, mean_module=LinearMean(2))
    with pytest.raises(UnsupportedError, match="or a ZeroMean, got LinearMean"):
        members(ExactGPView(model.eval()))
