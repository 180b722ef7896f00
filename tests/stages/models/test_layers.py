"""The parts of a block against NumPy, written another way."""

import jax
import numpy as np
import pytest

from stages.models import layers
from stages.models.config import RotaryConfig

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
    got = np.asarray(layers.rotate(x, *layers.rotary_angles(positions, 8, RotaryConfig(base=50.0))))
    turn = np.exp(1j * positions[0][:, None] * 50.0 ** (-2 * np.arange(4) / 8))
    pairs = (x[0, ..., :4] + 1j * x[0, ..., 4:]) * turn[:, None]
    np.testing.assert_allclose(got[0], np.concatenate([pairs.real, pairs.imag], axis=-1), atol=1e-4)


def test_dot_product_of_rotated_heads_depends_on_distance_alone():
    query, key = draw(1, 1, 1, 8), draw(1, 1, 1, 8)

    def dot(at_query: int, at_key: int) -> float:
        def turn(x: np.ndarray, at: int) -> jax.Array:
            return layers.rotate(x, *layers.rotary_angles(np.array([[at]], np.int32), 8, RotaryConfig()))

        return float((turn(query, at_query) * turn(key, at_key)).sum())

    assert dot(9, 4) == pytest.approx(dot(25, 20), abs=1e-5)
    assert dot(9, 4) != pytest.approx(dot(9, 5), abs=1e-3)


def test_llama3_stretches_slow_waves_keeps_fast_ones_and_ramps_between():
    """Each frequency worked out on its own, as the three cases of the publication."""
    config = RotaryConfig(
        base=500.0, scaling="llama3", factor=8.0, low_frequency_factor=1.0, high_frequency_factor=4.0, original_context=64
    )
    got = np.asarray(layers.rotary_frequencies(config, 16))
    kinds = set()
    for pair, frequency in enumerate(got):
        plain = 500.0 ** (-2 * pair / 16)
        wave = 2 * np.pi / plain
        if wave < 64 / 4:
            kinds.add("fast")
            expected = plain
        elif wave > 64 / 1:
            kinds.add("slow")
            expected = plain / 8
        else:
            kinds.add("between")
            smooth = (64 / wave - 1) / (4 - 1)
            expected = (1 - smooth) * plain / 8 + smooth * plain
        assert frequency == pytest.approx(expected, rel=1e-5)
    assert kinds == {"fast", "slow", "between"}


def test_linear_scaling_is_positions_divided_by_the_factor():
    positions = np.array([[0, 4, 40]], np.int32)
    stretched = layers.rotary_angles(positions, 8, RotaryConfig(scaling="linear", factor=4.0))
    plain = layers.rotary_angles(positions // 4, 8, RotaryConfig())
    np.testing.assert_allclose(stretched, plain, rtol=1e-4, atol=1e-5)


def test_soft_cap_bends_towards_the_cap_and_none_leaves_the_value():
    x = draw(5) * 100
    np.testing.assert_allclose(layers.soft_cap(x, 30.0), 30 * np.tanh(x / 30), rtol=1e-5)
    assert layers.soft_cap(x, None) is x
