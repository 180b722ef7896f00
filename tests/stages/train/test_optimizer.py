import jax.numpy as jnp
import numpy as np
import optax
import pytest
from pydantic import ValidationError

from stages.train.config import TrainerConfig
from stages.train.optimizer import decayed, learning_rate, make_optimizer, num_updates


def config(**settings) -> TrainerConfig:
    return TrainerConfig(row_length=8, learning_rate=1.0, **settings)


def rates(settings: TrainerConfig, steps: int) -> list[float]:
    schedule = learning_rate(settings)
    return [round(float(schedule(step)), 6) for step in range(steps)]


def test_schedules_rise_and_fall_as_configured():
    assert rates(config(), 3) == [1.0, 1.0, 1.0]
    assert rates(config(warmup_steps=3), 5) == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert rates(config(schedule="linear", decay_steps=4, final_share=0.0), 6) == [1.0, 0.75, 0.5, 0.25, 0.0, 0.0]
    assert rates(config(schedule="cosine", decay_steps=2, final_share=0.5, warmup_steps=1), 5) == [0.5, 1.0, 0.75, 0.5, 0.5]


def test_one_update_equals_adamw_by_hand():
    """The first AdamW step: both moments unbiased are g and g squared; gradient (3, 4) is clipped to norm 1 first."""
    settings = config(max_grad_norm=1.0, weight_decay=0.1, epsilon=0.01)
    parameters = {"kernel": jnp.array([[2.0, -2.0]]), "norm": jnp.array([[1.0]])}
    gradient = {"kernel": jnp.array([[3.0, 4.0]]), "norm": jnp.array([[0.0]])}
    optimizer = make_optimizer(settings)
    state = optimizer.init(parameters)
    updates, state = optimizer.update(gradient, state, parameters)
    got = optax.apply_updates(parameters, updates)
    clipped = np.array([0.6, 0.8])
    expected = np.array([2.0, -2.0]) - (clipped / (clipped + 0.01) + 0.1 * np.array([2.0, -2.0]))
    np.testing.assert_allclose(got["kernel"][0], expected, rtol=1e-5)
    assert got["norm"].tolist() == [[1.0]]
    assert num_updates(state) == 1


def test_only_matrices_are_decayed():
    tree = {
        "layers": {"kernel": jnp.ones((2, 2)), "attention_norm_LW": jnp.ones((2, 2)), "bias": jnp.ones((2, 2))},
        "scale": jnp.ones(2),
    }
    assert decayed(tree) == {"layers": {"kernel": True, "attention_norm_LW": False, "bias": False}, "scale": False}


def test_settings_that_cannot_be_meant_are_refused():
    with pytest.raises(ValidationError, match="expected decay_steps with schedule='cosine', got None"):
        config(schedule="cosine")
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        config(lr=1.0)
