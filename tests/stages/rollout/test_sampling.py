import jax
import jax.numpy as jnp
import numpy as np

from stages.rollout.sampling import Draw, no_draws, request_key, sample_tokens

drawn = jax.jit(sample_tokens)


def draw_of(temperature: np.ndarray, keys_S2: np.ndarray, **changes: np.ndarray) -> Draw:
    return no_draws(len(keys_S2))._replace(temperature_S=temperature, keys_S2=keys_S2, **changes)


def sample(
    logits: np.ndarray, temperature: np.ndarray, keys_S2: np.ndarray, positions: np.ndarray
) -> tuple[jax.Array, jax.Array]:
    return drawn(logits, draw_of(temperature, keys_S2), positions)[:2]


def keys(num: int) -> np.ndarray:
    return np.array([request_key((0, 0, member, 0, 0)) for member in range(num)])


def test_frequencies_are_the_tempered_softmax():
    """20,000 draws of 11 tokens in blocks of 4; a count may be 5 standard deviations off its expectation."""
    logits = np.array([3, 0, -2, 1, 1, -9, 2, 0, 0.5, -1, 2.5], np.float32)
    num, temperature = 20_000, 1.7
    temperatures = np.full(num, temperature, np.float32)
    ids, _ = sample(np.tile(logits, (num, 1)), temperatures, np.tile(keys(1), (num, 1)), np.arange(num, dtype=np.int32))
    counts = np.bincount(ids, minlength=11)
    expected = num * np.exp(logits / temperature) / np.exp(logits / temperature).sum()
    assert np.all(np.abs(counts - expected) < 5 * np.sqrt(expected) + 1), (counts, expected)


def test_logprob_is_that_of_the_distribution_sampled_from():
    """S80: computed in float64 NumPy at each row's own temperature."""
    logits = np.random.default_rng(0).normal(size=(6, 50)).astype(np.float32) * 4
    temperature = np.array([0.6, 1.0, 2.0, 0.1, 1.3, 0.9], np.float32)
    ids, logprobs = sample(logits, temperature, keys(6), np.zeros(6, np.int32))
    scaled = logits.astype(np.float64) / temperature[:, None]
    expected = scaled[np.arange(6), ids] - np.log(np.exp(scaled).sum(axis=-1))
    np.testing.assert_allclose(logprobs, expected, atol=1e-4)


def test_temperature_zero_takes_the_most_likely_token_with_its_logprob_at_temperature_one():
    """S81."""
    logits = np.random.default_rng(1).normal(size=(4, 9)).astype(np.float32)
    ids, logprobs = sample(logits, np.zeros(4, np.float32), keys(4), np.zeros(4, np.int32))
    np.testing.assert_array_equal(ids, logits.argmax(axis=-1))
    np.testing.assert_allclose(logprobs, logits.max(axis=-1) - np.log(np.exp(logits).sum(axis=-1)), atol=1e-6)


def test_token_without_probability_is_never_drawn():
    """All but two tokens, in different blocks, are ruled out; also where the largest weight is tiny beside float32's range."""
    logits = np.full((4000, 30), -np.inf, np.float32)
    logits[:, 11], logits[:, 29] = -300.0, -301.0
    ids, logprobs = sample(logits, np.ones(4000, np.float32), keys(4000), np.zeros(4000, np.int32))
    assert set(np.unique(ids)) == {11, 29}
    assert np.isfinite(logprobs).all()


def test_draw_is_a_function_of_key_and_position_not_of_the_row():
    logits = np.random.default_rng(2).normal(size=(1, 40)).astype(np.float32)
    order = np.random.default_rng(3).permutation(8)
    rows, ones, at = np.tile(logits, (8, 1)), np.ones(8, np.float32), np.arange(8, dtype=np.int32)
    ids, logprobs = sample(rows, ones, keys(8), at)
    moved_ids, moved_logprobs = sample(rows, ones, keys(8)[order], at[order])
    np.testing.assert_array_equal(moved_ids, ids[order])
    np.testing.assert_array_equal(moved_logprobs, logprobs[order])


def test_every_part_of_a_request_key_and_the_position_change_the_draw():
    """S86, S107: 64 uniform draws from 1,000 tokens agree by chance with probability 1e-3 each."""
    base = (7, 1, 2, 0, 0)
    others = [tuple(value + (at == part) for at, value in enumerate(base)) for part in range(5)]
    logits, ones = jnp.zeros((64, 1000)), np.ones(64, np.float32)

    def draw(key: tuple, start: int = 0) -> np.ndarray:
        return np.asarray(
            sample(logits, ones, np.tile(request_key(key), (64, 1)), np.arange(start, start + 64, dtype=np.int32))[0]
        )

    np.testing.assert_array_equal(draw(base), draw(base))
    np.testing.assert_array_equal(draw(base, 1)[:-1], draw(base)[1:])
    assert len(set(draw(base).tolist())) > 50
    for other in others:
        assert np.sum(draw(base) == draw(other)) < 5


def test_request_key_takes_seeds_beyond_32_bits():
    assert request_key((2**40, 0, 0, 0, 0)).tolist() != request_key((0, 0, 0, 0, 0)).tolist()
    assert request_key((0, 0, 0, 0, 0)).dtype == np.uint32
