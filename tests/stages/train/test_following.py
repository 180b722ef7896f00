"""A reference that follows, and a critic beside a policy, through a real trainer: published, saved and gone on with."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import msgspec
import numpy as np
import pytest
from flax import nnx

from flow import testing
from stages.batches.pack import make_batch
from stages.checkpoint.store import load_model
from stages.losses.policy import PolicyLoss
from stages.models.config import ModelConfig
from stages.models.critic import ActorCritic
from stages.models.lora import LoraConfig, add_lora
from stages.models.names import named_leaves
from stages.models.transformer import Transformer
from stages.records import Batch, Segment, Weights
from stages.train.config import TrainerConfig
from stages.train.following import FollowConfig
from stages.train.metrics import of_the_machine
from stages.train.trainer import Trainer

ROW = 8
MODEL = ModelConfig(
    vocab_size=11, width=8, num_layers=1, num_heads=2, num_kv_heads=1, head_size=4, mlp_width=16, context_length=ROW
)
CONFIG = TrainerConfig(row_length=ROW, rows_per_microbatch=2, learning_rate=0.05)

pytestmark = pytest.mark.slow  # Each trainer compiles, about a second.


def decoder(dtype: str = "float32", lora: bool = False) -> Transformer:
    model = Transformer(MODEL.model_copy(update={"dtype": dtype}), nnx.Rngs(0))
    if lora:
        add_lora(model, LoraConfig(rank=2))
    return model


def batch(step: int) -> Batch:
    random = np.random.default_rng(step)
    mask = np.arange(ROW) >= 2
    segments = [
        Segment(
            random.integers(0, 11, ROW).astype(np.int32),
            mask,
            np.full(ROW, sign, np.float32),
            np.full(ROW, -2, np.float32),
            values=np.zeros(ROW, np.float32),
            returns=random.normal(size=ROW).astype(np.float32),
        )
        for sign in (1.0, -1.0)
    ]
    return make_batch(step, [(segment,) for segment in segments])


def opened(model: Any, follow: FollowConfig | None = None, loss: PolicyLoss | None = None) -> Trainer:
    trainer = Trainer(model, loss or PolicyLoss(), CONFIG, follow=follow)
    trainer.open()
    return trainer


def run(trainer: Trainer, steps: range, rows: list[dict[str, Any]] | None = None) -> list[Weights]:
    context, published = testing.context(node="trainer", report=[].append if rows is None else rows.append), []
    for step in steps:
        trainer.add(batch(step), context)
        published.append(trainer.finish(context))
    return published


def flat(tree: Any) -> np.ndarray:
    return np.concatenate([np.ravel(np.asarray(leaf, np.float64)) for leaf in jax.tree.leaves(tree)])


def test_a_reference_is_refreshed_every_so_many_steps_and_is_the_same_object_until_then():
    trainer = opened(decoder(), FollowConfig(every=2))
    first = trainer.weights
    assert first.reference is first.parameters
    one, two, three, four = run(trainer, range(4))
    assert one.reference is first.reference
    assert two.reference is two.parameters
    assert three.reference is two.reference
    assert four.reference is four.parameters


@pytest.mark.parametrize(("dtype", "bound"), [("float32", 1e-6), ("bfloat16", 1e-2)])
def test_a_moving_average_is_that_of_all_versions_in_order(dtype: str, bound: float):
    """Against the recursion in float64 over what was published; every second step, and in the model's own type."""
    trainer = opened(decoder(dtype), FollowConfig(every=2, decay=0.75))
    wanted = flat(trainer.weights.parameters)
    for step, weights in enumerate(run(trainer, range(4)), start=1):
        if step % 2 == 0:
            wanted = 0.75 * wanted + 0.25 * flat(weights.parameters)
        np.testing.assert_allclose(flat(weights.reference), wanted, atol=bound)
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(weights.reference)} == {dtype}
    assert np.abs(flat(weights.parameters) - wanted).max() > 3 * bound


def test_an_average_in_bfloat16_moves_by_less_than_that_type_can_tell():
    """A share of 1e-4 of each step is lost in bfloat16, so it is kept in float32."""
    trainer = opened(decoder("bfloat16"), FollowConfig(decay=0.9999))
    run(trainer, range(2))
    norm = np.asarray(trainer._following.state["final_norm_W"][...])
    assert norm.dtype == np.float32
    assert 0 < np.abs(norm - 1).max() < 2**-9


def test_nothing_follows_unless_it_is_told_to():
    assert opened(decoder()).weights.reference is None


@pytest.mark.parametrize(
    ("kind", "follow"),
    [
        ("float32", FollowConfig(every=2)),
        ("bfloat16 critic", FollowConfig(decay=0.5)),
        ("lora critic", FollowConfig(every=2)),
        ("lora", None),
    ],
)
def test_a_run_that_goes_on_has_the_reference_and_the_critic_it_had(
    tmp_path: Path, kind: str, follow: FollowConfig | None, keep: Callable[..., None], take_up: Callable[..., None]
):
    """Three steps, then two more in another process's place, against five at once: weights, moments and every number that is
    reported, to the bit; and the policy saved alone. S100."""
    loss = PolicyLoss(value_coefficient=0.5 if "critic" in kind else 0.0)

    def make() -> Any:
        model = decoder("bfloat16" if "bfloat16" in kind else "float32", "lora" in kind)
        return ActorCritic(model) if "critic" in kind else model

    rows: list[dict[str, Any]] = []
    again: list[dict[str, Any]] = []
    unbroken = opened(make(), follow, loss)
    whole = run(unbroken, range(5), rows)
    first = opened(make(), follow, loss)
    run(first, range(3), again)
    keep(first, tmp_path / "three")
    second = opened(make(), follow, loss)
    take_up(second, tmp_path / "three")
    assert_same(second.weights, whole[2])
    assert_same(run(second, range(3, 5), again)[-1], whole[4])
    ours, theirs = ((one._learner.parameters, one._learner.state) for one in (second, unbroken))
    np.testing.assert_array_equal(flat(ours), flat(theirs))
    told = [[{k: v for k, v in row.items() if not of_the_machine(k)} for row in each] for each in (again, rows)]
    assert told[0] == told[1]
    assert ("value_loss" in rows[0]) == ("critic" in kind)
    keep(second, tmp_path / "five")
    alone = decoder("bfloat16" if "bfloat16" in kind else "float32", "lora" in kind)
    load_model(alone, tmp_path / "five")
    saved = named_leaves(nnx.state(alone))
    for name, leaf in named_leaves(whole[4].parameters).items():
        np.testing.assert_array_equal(saved[name], leaf)


def assert_same(ours: Weights, theirs: Weights) -> None:
    for name in msgspec.structs.fields(Weights):
        one, other = getattr(ours, name.name), getattr(theirs, name.name)
        assert jax.tree.structure(one) == jax.tree.structure(other), name.name
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
            np.testing.assert_array_equal(a, b)


def test_the_policys_part_is_published_alone_and_both_are_written_back():
    policy = decoder()
    model = ActorCritic(policy)
    trainer = opened(model)
    [weights] = run(trainer, range(1))
    trainer.close()
    assert named_leaves(weights.parameters).keys() == named_leaves(nnx.state(policy)).keys()
    assert named_leaves(weights.critic).keys() == named_leaves(nnx.state(model.critic)).keys()
    np.testing.assert_array_equal(policy.embedding_VW[...], weights.parameters["embedding_VW"][...])


def test_what_was_published_lives_on_while_later_steps_are_made():
    """Masters of a bfloat16 model are donated; the head of its critic is float32 already, and must not go with them."""
    trainer = opened(ActorCritic(decoder("bfloat16")), FollowConfig(decay=0.5))
    published = [trainer.weights, *run(trainer, range(3))]
    assert not any(leaf.is_deleted() for weights in published for leaf in leaves_of(weights))
    first, last = flat(published[0].critic["head_W"]), flat(published[-1].parameters)
    assert not first.any()
    assert np.isfinite(last).all()


def leaves_of(weights: Weights) -> list[Any]:
    return jax.tree.leaves([getattr(weights, field.name) for field in msgspec.structs.fields(Weights)])


def test_the_policy_of_a_pair_learns_as_it_would_alone():
    """A loss that reads no values: the same policy to the bit, and a critic that stays what it was but for nothing."""
    [alone] = run(opened(decoder()), range(1))
    pair = opened(ActorCritic(decoder()))
    before = pair.weights.critic
    [weights] = run(pair, range(1))
    for ours, theirs in zip(jax.tree.leaves(weights.parameters), jax.tree.leaves(alone.parameters), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-7)
    for ours, theirs in zip(jax.tree.leaves(weights.critic), jax.tree.leaves(before), strict=True):
        np.testing.assert_array_equal(ours, theirs)
