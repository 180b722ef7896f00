import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stages.losses.correction import importance_weight

LOG_2 = float(np.log(2.0))
PROXIMAL_BT = jnp.asarray([[0.0, LOG_2, 2 * LOG_2, 5.0, -LOG_2]])
MASK_BT = jnp.asarray([[True, True, True, False, True]])
SEGMENTS_BT = jnp.asarray([[1, 1, 1, 1, 2]])


def weights(kind, level, cap, floor):
    found = importance_weight(PROXIMAL_BT, jnp.zeros((1, 5)), MASK_BT, SEGMENTS_BT, kind, level, cap, floor)
    return np.asarray(found.weight)[MASK_BT].tolist(), np.asarray(found.out)[MASK_BT].tolist()


@pytest.mark.parametrize(
    ("kind", "level", "cap", "floor", "expected", "out"),
    [
        ("truncated", "token", None, None, [1, 2, 4, 0.5], "...."),
        ("truncated", "token", 3.0, None, [1, 2, 3, 0.5], "..x."),
        ("masked", "token", 3.0, None, [1, 2, 0, 0.5], "..x."),
        ("masked", "token", 3.0, 0.8, [1, 2, 0, 0], "..xx"),
        ("masked", "token", None, 0.8, [1, 2, 4, 0], "...x"),
        ("truncated", "sequence", None, None, [8, 8, 8, 0.5], "...."),
        ("masked", "sequence", 5.0, None, [0, 0, 0, 0.5], "xxx."),
        ("truncated", "geometric", 1.9, None, [1.9, 1.9, 1.9, 0.5], "xxx."),
        ("truncated", "geometric", 3.0, None, [2, 2, 2, 0.5], "...."),
    ],
)
def test_weights_are_those_worked_out_by_hand(kind, level, cap, floor, expected, out):
    """Targets with weights 1, 2 and 4 in one sequence and one half in another; the token between is no target."""
    found, found_out = weights(kind, level, cap, floor)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert "".join("x" if each else "." for each in found_out) == out


def test_no_gradient_goes_through_a_weight():
    def total(proximal_BT: jax.Array) -> jax.Array:
        arguments = jnp.zeros((1, 5)), MASK_BT, SEGMENTS_BT
        return jnp.sum(importance_weight(proximal_BT, *arguments, "truncated", "sequence", None, None).weight)

    assert not jax.grad(total)(PROXIMAL_BT).any()
