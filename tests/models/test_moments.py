import torch
from botorch.posteriors.fully_bayesian import GaussianMixturePosterior
from botorch.posteriors.gpytorch import GPyTorchPosterior
from gpytorch.distributions import MultivariateNormal

from botorch_res.models.moments import posterior_moments

MEAN = torch.tensor([[0.0, 1.0], [2.0, 5.0]], dtype=torch.double)
VARIANCE = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.double)


def test_a_single_model_has_its_own_moments():
    normal = MultivariateNormal(MEAN, torch.diag_embed(VARIANCE))
    mean, variance = posterior_moments(GPyTorchPosterior(normal))
    torch.testing.assert_close(mean.squeeze(-1), MEAN)
    torch.testing.assert_close(variance.squeeze(-1), VARIANCE)


def test_an_ensemble_has_those_of_the_mixture():
    normal = MultivariateNormal(MEAN, torch.diag_embed(VARIANCE))
    mean, variance = posterior_moments(GaussianMixturePosterior(normal))
    expected = MEAN.mean(dim=0)
    spread = (VARIANCE + MEAN.square()).mean(dim=0) - expected.square()
    torch.testing.assert_close(mean.squeeze(-1), expected)
    torch.testing.assert_close(variance.squeeze(-1), spread)
