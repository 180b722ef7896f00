import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stages.models import layers, logprobs
from stages.models.logprobs import Head, target_logprobs

RANDOM = np.random.default_rng(0)
LOGITS = RANDOM.normal(size=(1, 7, 5)).astype(np.float32) * 3
IDS = RANDOM.integers(0, 5, (1, 7)).astype(np.int32)
TARGETS = np.array([[False, True, True, False, True, False, False]])


def by_hand(temperature: float) -> tuple[np.ndarray, np.ndarray]:
    """One token at a time, from probabilities in float64."""
    logprobs, entropies = np.zeros((1, 7)), np.zeros((1, 7))
    for at in (1, 2, 4):
        weights = np.exp(LOGITS[0, at - 1].astype(np.float64) / temperature)
        probabilities = weights / weights.sum()
        logprobs[0, at] = np.log(probabilities[IDS[0, at]])
        entropies[0, at] = -(probabilities * np.log(probabilities)).sum()
    return logprobs, entropies


def scored(temperature: float = 1.0) -> tuple[jax.Array, jax.Array]:
    """Vectors that are the logits, by a projection that leaves them as they are."""
    return target_logprobs(LOGITS, Head(jnp.eye(5)), IDS, TARGETS, temperature)


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_a_token_is_scored_by_the_logits_before_it_over_the_temperature_and_others_are_zero(temperature):
    """S80."""
    for got, expected in zip(scored(temperature), by_hand(temperature), strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-5)


def test_temperature_zero_scores_at_temperature_one():
    """S81."""
    np.testing.assert_array_equal(scored(0.0)[0], scored()[0])


WIDTH, ROWS, LENGTH, VOCABULARY = 6, 3, 23, 19


def drawn(dtype: str = "float32") -> tuple:
    """Vectors, a projection, ids and targets: a few tokens of a row are none."""
    random = np.random.default_rng(1)
    hidden = jnp.asarray(random.normal(size=(ROWS, LENGTH, WIDTH)), dtype)
    projection = jnp.asarray(random.normal(size=(VOCABULARY, WIDTH)), dtype)
    ids = random.integers(0, VOCABULARY, (ROWS, LENGTH)).astype(np.int32)
    targets = random.random((ROWS, LENGTH)) < 0.5
    targets[:, 0] = targets[:, -3:] = False
    return hidden, projection, ids, targets


def of_full_logits(logits: jax.Array, ids: np.ndarray, temperature: float = 1.0) -> tuple[jax.Array, jax.Array]:
    """Log-probabilities and entropies of all tokens but the first, 0 for that, by the softmax of JAX."""
    normal = jax.nn.log_softmax(logits[:, :-1] / (temperature or 1.0))
    chosen = jnp.take_along_axis(normal, ids[:, 1:, None], axis=-1)[..., 0]
    return tuple(jnp.pad(part, ((0, 0), (1, 0))) for part in (chosen, -jnp.sum(jnp.exp(normal) * normal, axis=-1)))


def weighed(logprobs: jax.Array, entropies: jax.Array) -> jax.Array:
    """A number that has a gradient of its own for each."""
    random = np.random.default_rng(2)
    first, second = random.normal(size=(2, ROWS, LENGTH)).astype(np.float32)
    return jnp.sum(logprobs * first + entropies * second)


@pytest.mark.parametrize("chunk", [VOCABULARY * 16, 1 << 23])
@pytest.mark.parametrize(("cap", "temperature"), [(None, 1.0), (2.0, 0.6), (None, 0.0)])
def test_targets_without_their_logits_are_what_full_logits_give(monkeypatch, chunk, cap, temperature):
    """Values and gradients, by vectors and projection, of log-probabilities and entropies; in chunks, and in a single one."""
    monkeypatch.setattr(logprobs, "CHUNK_LOGITS", chunk)
    hidden, projection, ids, mask = drawn()

    def full(hidden: jax.Array, projection: jax.Array) -> jax.Array:
        logits = layers.soft_cap(hidden @ projection.T, cap)
        return weighed(*(jnp.where(mask, part, 0.0) for part in of_full_logits(logits, ids, temperature)))

    def targets(hidden: jax.Array, projection: jax.Array) -> jax.Array:
        return weighed(*target_logprobs(hidden, Head(projection, cap), ids, mask, temperature))

    expected, wanted = jax.value_and_grad(full, argnums=(0, 1))(hidden, projection)
    value, gradient = jax.jit(jax.value_and_grad(targets, argnums=(0, 1)))(hidden, projection)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    for mine, other in zip(gradient, wanted, strict=True):
        np.testing.assert_allclose(mine, other, atol=3e-5)


def test_tokens_that_are_no_targets_give_zero_and_have_no_gradient():
    """S75: NaN in the vector of one that is no target reaches neither."""
    hidden, projection, ids, mask = drawn()
    hidden = jnp.where(jnp.pad(mask[:, 1:], ((0, 0), (0, 1)))[..., None], hidden, jnp.nan)
    found = jax.jit(lambda h, p: target_logprobs(h, Head(p), ids, mask))(hidden, projection)
    gradient = jax.jit(jax.grad(lambda h, p: weighed(*target_logprobs(h, Head(p), ids, mask)), argnums=(0, 1)))(
        hidden, projection
    )
    for part in found:
        assert np.isfinite(part).all()
        assert not part[~mask].any()
    assert all(np.isfinite(part).all() for part in gradient)


def test_without_a_target_nothing_is_projected_and_all_is_zero():
    hidden, projection, ids, mask = drawn()
    value, gradient = jax.value_and_grad(lambda h: weighed(*target_logprobs(h, Head(projection), ids, np.zeros_like(mask))))(
        hidden
    )
    assert value == 0.0
    assert not gradient.any()


def test_bfloat16_vectors_give_float32_numbers_close_to_exact_ones():
    hidden, projection, ids, mask = drawn("bfloat16")
    found = target_logprobs(hidden, Head(projection), ids, mask)
    exact = of_full_logits(hidden.astype(jnp.float32) @ projection.astype(jnp.float32).T, ids)
    for mine, other in zip(found, exact, strict=True):
        assert mine.dtype == jnp.float32
        np.testing.assert_allclose(mine, np.where(mask, other, 0.0), atol=1e-4)
    gradient = jax.grad(lambda p: target_logprobs(hidden, Head(p), ids, mask)[0].sum())(projection)
    assert gradient.dtype == jnp.bfloat16


def test_memory_does_not_grow_with_tokens_times_vocabulary():
    """The bytes a compiled gradient works in: full logits of the longer rows alone would be 16 times what is allowed."""

    def temporary(length: int) -> int:
        hidden, projection = jnp.ones((1, length, 8)), jnp.ones((4096, 8))
        ids, mask = np.zeros((1, length), np.int32), np.ones((1, length), bool)
        gradient = jax.jit(jax.grad(lambda h, p: target_logprobs(h, Head(p), ids, mask)[0].sum(), argnums=(0, 1)))
        return gradient.lower(hidden, projection).compile().memory_analysis().temp_size_in_bytes

    short, long = temporary(4096), temporary(32768)
    assert long - short < 32768 * 4096 * 4 / 16
