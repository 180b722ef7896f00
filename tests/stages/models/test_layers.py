"""The parts of a block against NumPy, written another way."""

import jax
import numpy as np
import pytest

from stages.models import layers

RANDOM = np.random.default_rng(0)


def draw(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).astype(np.float32)


def test_rms_norm_divides_by_the_root_mean_square():
    x, scale = draw(3, 8), draw(8)
    expected = [row / np.sqrt(np.mean(row**2) + 1e-5) * scale for row in x.astype(np.float64)]
    np.testing.assert_allclose(layers.rms_norm(x, scale, 1e-5), expected, rtol=1e-5)


def test_rotation_is_multiplication_of_complex_pairs():
    """Computed with complex numbers: pair (i, i + D/2) times exp(i * position * base ** (-2 i / D))."""
    x = draw(1, 5, 3, 8)
    positions = np.array([[0, 1, 2, 7, 100]], np.int32)
    got = np.asarray(layers.rotate(x, *layers.rotary_angles(positions, 8, 50.0)))
    turn = np.exp(1j * positions[0][:, None] * 50.0 ** (-2 * np.arange(4) / 8))
    pairs = (x[0, ..., :4] + 1j * x[0, ..., 4:]) * turn[:, None]
    np.testing.assert_allclose(got[0], np.concatenate([pairs.real, pairs.imag], axis=-1), atol=1e-4)


def test_dot_product_of_rotated_heads_depends_on_distance_alone():
    query, key = draw(1, 1, 1, 8), draw(1, 1, 1, 8)

    def dot(at_query: int, at_key: int) -> float:
        def turn(x: np.ndarray, at: int) -> jax.Array:
            return layers.rotate(x, *layers.rotary_angles(np.array([[at]], np.int32), 8, 10_000.0))

        return float((turn(query, at_query) * turn(key, at_key)).sum())

    assert dot(9, 4) == pytest.approx(dot(25, 20), abs=1e-5)
    assert dot(9, 4) != pytest.approx(dot(9, 5), abs=1e-3)


def test_attention_over_two_sources_is_attention_over_their_concatenation():
    """Computed with a loop over rows, heads and queries, in which a query sees a list of (key, value) pairs."""
    query = draw(2, 2, 3, 4, 6)
    keys, values = draw(2, 2, 7, 6), draw(2, 2, 7, 6)
    allowed = RANDOM.random((2, 4, 7)) < 0.6
    allowed[:, :, 5] = True
    sources = [
        layers.Source(keys.swapaxes(2, 3)[..., part], values[:, :, part], allowed[:, :, part])
        for part in (np.s_[:3], np.s_[3:])
    ]
    got = np.asarray(layers.attend(query, *sources))
    for row, head, group, at in np.ndindex(2, 2, 3, 4):
        seen = np.flatnonzero(allowed[row, at])
        scores = np.exp([query[row, head, group, at] @ keys[row, head, one] / np.sqrt(6) for one in seen])
        expected = (scores / scores.sum()) @ values[row, head, seen]
        np.testing.assert_allclose(got[row, head, group, at], expected, atol=1e-5)


def test_query_that_may_see_nothing_gives_a_finite_value():
    source = layers.Source(draw(1, 1, 4, 3), draw(1, 1, 3, 4), np.zeros((1, 2, 3), bool))
    assert np.isfinite(layers.attend(draw(1, 1, 1, 2, 4), source)).all()


def test_swiglu_gates_one_projection_by_the_other():
    x, gate, up, down = draw(3, 4), draw(4, 5), draw(4, 5), draw(5, 4)
    g = x @ gate
    np.testing.assert_allclose(layers.swiglu(x, gate, up, down), (g / (1 + np.exp(-g)) * (x @ up)) @ down, rtol=1e-4, atol=1e-5)
