"""A policy and its critic trained by one loss."""

from pathlib import Path

import jax
import msgspec
import numpy as np
import pytest
from flax import nnx

from stages.batches.pack import make_batch
from stages.losses.policy import PolicyLoss
from stages.models.config import ModelConfig
from stages.models.critic import ActorCritic
from stages.models.transformer import Transformer
from stages.records import Batch
from stages.train.bad_steps import BadSteps
from stages.train.replay import replay

pytestmark = pytest.mark.slow  # Each setting compiles once, some seconds.

LOSS = PolicyLoss(value_coefficient=0.5)


def pair() -> ActorCritic:
    config = ModelConfig(
        vocab_size=11,
        width=8,
        num_layers=1,
        num_heads=2,
        num_kv_heads=1,
        head_size=4,
        mlp_width=16,
        context_length=12,
    )
    return ActorCritic(Transformer(config, nnx.Rngs(0)))


@pytest.fixture
def groups(segment) -> list[Batch]:
    """Segments whose returns depend on their tokens."""
    random = np.random.default_rng(2)
    made = []
    for birth in range(2):
        plain = [segment(random, 8, f"{birth}.{member}") for member in range(3)]
        segments = [
            msgspec.structs.replace(one, values=np.zeros(8, np.float32), returns=(one.ids % 3 - 0.5).astype(np.float32))
            for one in plain
        ]
        made.append(make_batch(birth, [(one,) for one in segments]))
    return made


def test_a_critic_learns_the_returns_beside_its_policy(train, groups, flat):
    """Its first values are 0, so the first value loss is that of the returns alone, by hand; both parts change.

    Its last values, asked of the model itself, are those that one step more reports the errors of.
    """
    model = pair()
    policy = flat(nnx.state(model.policy, nnx.Param))
    ran = train([groups] * 40, model=model, loss=LOSS, learning_rate=0.04)
    segments = [segment for batch in groups for segment in batch.segments]
    returns = np.concatenate([one.returns[one.mask] for one in segments])
    assert ran.rows[0]["value_loss"] == pytest.approx(0.5 * np.mean(returns**2), rel=1e-5)
    assert ran.rows[0]["explained_variance"] == pytest.approx(0.0, abs=1e-5)
    assert ran.rows[-1]["value_loss"] < 0.3 * ran.rows[0]["value_loss"]
    assert ran.rows[-1]["explained_variance"] > 0.5
    assert not np.array_equal(flat(nnx.state(model.policy, nnx.Param)), policy)
    ids, mask = np.stack([one.ids for one in segments]), np.stack([one.mask for one in segments])
    positions = np.broadcast_to(np.arange(8, dtype=np.int32), ids.shape)
    values = jax.jit(lambda m, *rows: m.values(*rows))(model, ids, positions, np.ones_like(ids))
    errors = returns - np.asarray(values)[mask]
    (again,) = train([groups], model=model, loss=LOSS).rows
    assert again["value_error"] == pytest.approx(errors.mean(), rel=1e-3, abs=1e-5)
    assert again["value_loss"] == pytest.approx(0.5 * np.mean(errors**2), rel=1e-3)


def test_a_bad_step_of_a_pair_is_repeated_with_both_parts(train, groups, tmp_path: Path):
    """The critic alone is broken, in several updates a step: a return is infinite, so the trunk of the policy stays finite."""
    groups[0].segments[0].returns[5] = np.inf
    (row,) = train([groups], BadSteps(tmp_path / "bad-steps", 4), model=pair(), loss=LOSS, num_minibatches=2).rows
    assert (row["updates"], row["skipped"]) == (1, "not_finite")
    (folder,) = (tmp_path / "bad-steps").iterdir()
    replayed = replay(pair(), LOSS, folder)
    assert replayed.same_bits
    assert replayed.not_finite
    assert all(name.startswith("critic.") for name in replayed.not_finite)
