import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stages.losses.kl import reference_kl

pytestmark = pytest.mark.slow  # The first test to use an operation compiles it.

VOCAB = 6


def distributions() -> tuple[np.ndarray, np.ndarray]:
    """Logits of the policy, and log-probabilities of the reference, over a vocabulary."""
    random = np.random.default_rng(0)
    logits, reference = random.normal(size=(2, VOCAB))
    return logits, reference - np.log(np.exp(reference).sum())


def expected_gradient(estimator: str, logits: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Mean, over tokens drawn from the policy, of the gradient of the estimate with respect to the logits."""
    probabilities = jax.nn.softmax(logits)

    def mean(changed: jax.Array) -> jax.Array:
        estimates_BT = reference_kl(jax.nn.log_softmax(changed)[None], jnp.asarray(reference)[None], estimator)
        return jnp.sum(jax.lax.stop_gradient(probabilities) * estimates_BT[0])

    return np.asarray(jax.grad(mean)(jnp.asarray(logits)))


def kl(one: jax.Array, other: jax.Array) -> jax.Array:
    return jnp.sum(jnp.exp(one) * (one - other))


@pytest.mark.parametrize("estimator", ["k1", "k2"])
def test_the_mean_gradient_of_k1_and_k2_is_that_of_the_divergence_from_the_reference(estimator):
    with jax.enable_x64(True):
        logits, reference = distributions()
        found = expected_gradient(estimator, logits, reference)
        expected = jax.grad(lambda changed: kl(jax.nn.log_softmax(changed), jnp.asarray(reference)))(jnp.asarray(logits))
        np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_the_mean_gradient_of_k3_is_that_of_the_divergence_the_other_way_round():
    with jax.enable_x64(True):
        logits, reference = distributions()
        found = expected_gradient("k3", logits, reference)
        expected = jax.grad(lambda changed: kl(jnp.asarray(reference), jax.nn.log_softmax(changed)))(jnp.asarray(logits))
        np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_the_mean_of_k1_and_k3_is_the_divergence_and_k2_is_near_it_for_near_distributions():
    logits, reference = distributions()
    with jax.enable_x64(True):
        for share, off in ((1.0, 0.5), (0.01, 1e-2)):
            policy = np.asarray(jax.nn.log_softmax(reference + share * logits))
            exact = float(np.sum(np.exp(policy) * (policy - reference)))
            for estimator in ("k1", "k2", "k3"):
                estimates = np.asarray(reference_kl(jnp.asarray(policy)[None], jnp.asarray(reference)[None], estimator))[0]
                mean = float(np.sum(np.exp(policy) * estimates))
                assert mean == pytest.approx(exact, rel=off if estimator == "k2" else 1e-9)


def test_a_token_far_from_the_reference_is_pulled_back_or_left_alone_and_never_overflows():
    """k1 and k2 pull harder the farther it is, k3 at most by 1, and by nothing where its exponential would overflow."""
    far_BT = jnp.asarray([[300.0, -300.0]])

    def gradient(estimator: str) -> list[float]:
        return jax.grad(lambda apart: jnp.sum(reference_kl(apart, jnp.zeros_like(apart), estimator)))(far_BT)[0].tolist()

    assert gradient("k1") == gradient("k2") == [300.0, -300.0]
    assert gradient("k3") == [1.0, 0.0]
    assert np.isfinite(reference_kl(far_BT, jnp.zeros_like(far_BT), "k3")).all()
