import jax
import jax.numpy as jnp
import pytest

from stages.losses.clipped import clipped_objective


@pytest.mark.parametrize(
    ("ratio", "advantage", "value", "slope", "binds"),
    [
        (1.1, 2.0, 2.2, 2.0, ""),
        (1.5, 2.0, 2.6, 0.0, "high"),
        (0.5, 2.0, 1.0, 2.0, ""),
        (0.5, -2.0, -1.6, 0.0, "low"),
        (1.5, -2.0, -3.0, -2.0, ""),
        (4.0, -2.0, -6.0, 0.0, "dual"),
        (9.0, 0.0, 0.0, 0.0, ""),
    ],
)
def test_each_bound_holds_the_side_it_is_for(ratio, advantage, value, slope, binds):
    """Bounds 0.2 below, 0.3 above, and 3 for bad tokens; worked out by hand."""

    def objective(at: jax.Array):
        return clipped_objective(at, jnp.full((1, 1), advantage), 0.2, 0.3, 3.0)

    at = jnp.full((1, 1), ratio)
    found = objective(at)
    assert float(found.value[0, 0]) == pytest.approx(value, rel=1e-6)
    assert float(jax.grad(lambda r: jnp.sum(objective(r).value))(at)[0, 0]) == pytest.approx(slope)
    assert [name for name in ("low", "high", "dual") if getattr(found, name)[0, 0]] == ([binds] if binds else [])
