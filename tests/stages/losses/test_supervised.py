import jax
import numpy as np

from stages.losses.supervised import SupervisedLoss
from stages.losses.tokens import Needs


def test_the_loss_is_the_negative_log_likelihood_of_the_targets(make_tokens):
    batch = make_tokens(0)
    mask = np.asarray(batch.mask)
    total, sums = SupervisedLoss()(batch)
    logprobs, weights = (np.asarray(array, np.float64)[mask] for array in (batch.logprobs, batch.weights))
    np.testing.assert_allclose(total, -(logprobs * weights).sum(), rtol=1e-5)
    np.testing.assert_allclose(sums["entropy"], np.asarray(batch.entropy)[mask].sum(), rtol=1e-5)
    gradient = jax.grad(lambda logprobs: SupervisedLoss()(batch._replace(logprobs=logprobs))[0])(batch.logprobs)
    np.testing.assert_array_equal(gradient, -np.where(mask, batch.weights, np.float32(0)))


def test_it_needs_targets_alone():
    assert SupervisedLoss(aggregation="sequence").needs == Needs("sequence", behaviour=False, silent=True, stale=False)
