import jax
import jax.numpy as jnp
import numpy as np

from stages.models.logprobs import token_logprobs

RANDOM = np.random.default_rng(0)
LOGITS = RANDOM.normal(size=(1, 7, 5)).astype(np.float32) * 3
IDS = RANDOM.integers(0, 5, (1, 7)).astype(np.int32)
SEGMENTS = np.array([[1, 1, 1, 2, 2, 0, 0]], np.int32)


def by_hand(temperature: float) -> tuple[np.ndarray, np.ndarray]:
    """One token at a time, from probabilities in float64."""
    logprobs, entropies = np.zeros((1, 7)), np.zeros((1, 7))
    for at in (1, 2, 4):
        weights = np.exp(LOGITS[0, at - 1].astype(np.float64) / temperature)
        probabilities = weights / weights.sum()
        logprobs[0, at] = np.log(probabilities[IDS[0, at]])
        entropies[0, at] = -(probabilities * np.log(probabilities)).sum()
    return logprobs, entropies


def test_token_is_scored_by_the_logits_before_it_and_segment_starts_and_padding_are_zero():
    for got, expected in zip(token_logprobs(LOGITS, IDS, SEGMENTS), by_hand(1.0), strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-5)


def test_temperature_divides_the_logits():
    """S80."""
    for got, expected in zip(token_logprobs(LOGITS, IDS, SEGMENTS, 0.6), by_hand(0.6), strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-5)


def test_temperature_zero_scores_at_temperature_one():
    """S81."""
    np.testing.assert_array_equal(token_logprobs(LOGITS, IDS, SEGMENTS, 0.0)[0], token_logprobs(LOGITS, IDS, SEGMENTS)[0])


def test_gradient_is_finite_and_zero_where_nothing_is_predicted():
    """S75."""
    gradient = jax.grad(lambda logits: jnp.sum(token_logprobs(logits, IDS, SEGMENTS)[0]))(LOGITS)
    assert np.isfinite(gradient).all()
    assert (np.abs(gradient).sum(axis=-1) > 0)[0].tolist() == [True, True, False, True, False, False, False]
