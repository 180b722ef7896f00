"""A critic beside its policy: where it begins, what it says, and what of both is trained."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from stages.models.config import ModelConfig
from stages.models.critic import ActorCritic, parted, together
from stages.models.lora import LoraConfig, add_lora, trained
from stages.models.mesh import MeshConfig, make_mesh
from stages.models.names import named_leaves
from stages.models.sharding import shard, undivided
from stages.models.transformer import Transformer

MODEL = ModelConfig(
    vocab_size=11, width=8, num_layers=1, num_heads=2, num_kv_heads=1, head_size=4, mlp_width=16, context_length=8,
    tie_embeddings=False,
)  # fmt: skip
IDS = np.array([[1, 2, 3, 4, 5, 6, 7, 0]], np.int32)
SEGMENTS = np.array([[1, 1, 1, 2, 2, 2, 2, 0]], np.int32)
POSITIONS = np.array([[0, 1, 2, 0, 1, 2, 3, 0]], np.int32)


def described(lora: bool = False) -> Transformer:
    model = nnx.eval_shape(lambda: Transformer(MODEL, nnx.Rngs(0)))
    if lora:
        add_lora(model, LoraConfig(rank=2))
    return model


def load(model: Transformer, seed: int = 0) -> None:
    nnx.update(model, nnx.state(Transformer(MODEL, nnx.Rngs(seed)), nnx.Param))


def test_a_critic_of_a_policy_that_is_only_described_begins_as_it_was_loaded_and_says_nothing_yet() -> None:
    policy = described()
    model = ActorCritic(policy)
    load(policy)
    assert not model.critic.has_begun
    model.begin()
    ours, theirs = named_leaves(nnx.state(model.critic.trunk)), named_leaves(nnx.state(policy))
    assert theirs.keys() - ours.keys() == {"unembedding_VW"}
    for name, leaf in ours.items():
        np.testing.assert_array_equal(leaf, theirs[name])
    np.testing.assert_array_equal(model.critic.head_W[...], np.zeros(8, np.float32))  # so every value is 0
    load(policy, seed=1)
    model.begin()
    np.testing.assert_array_equal(model.critic.trunk.embedding_VW[...], theirs["embedding_VW"])


def read(model: ActorCritic) -> tuple[jax.Array, ...]:
    packed = IDS, POSITIONS, SEGMENTS
    return model.values(*packed), model.policy.hidden(*packed), model.hidden(*packed), model.head.projection_VW


@pytest.mark.slow
def test_a_value_is_of_what_came_before_a_token_in_its_segment() -> None:
    """Read off the token before, 0 at first tokens and padding; written out token by token."""
    policy = described()
    model = ActorCritic(policy)
    load(policy)
    model.begin()
    head = np.arange(8, dtype=np.float32)
    model.critic.head_W[...] = jnp.asarray(head)
    values, hidden, own, projection = nnx.jit(read)(model)
    np.testing.assert_array_equal(own, hidden)
    np.testing.assert_array_equal(projection, policy.head.projection_VW)
    values, hidden = np.asarray(values)[0], np.asarray(hidden)[0]
    wanted = [0, hidden[0] @ head, hidden[1] @ head, 0, hidden[3] @ head, hidden[4] @ head, hidden[5] @ head, 0]
    np.testing.assert_allclose(values, wanted, atol=1e-5)
    assert values.dtype == np.float32


def test_beside_adapters_the_critic_has_its_own_and_a_head_over_the_same_weights() -> None:
    policy = described(lora=True)
    model = ActorCritic(policy)
    load(policy)
    model.begin()
    _, own, frozen = nnx.split(model, trained(model), nnx.Param)
    actor, critic = parted(model, own)
    assert all("lora_" in name for name in named_leaves(actor))
    assert named_leaves(critic).keys() == {"head_W", *(f"trunk.{name}" for name in named_leaves(actor))}
    assert len(jax.tree.leaves(frozen)) == len(jax.tree.leaves(nnx.state(Transformer(MODEL, nnx.Rngs(0)))))
    policy.blocks[0].query.lora_up_RO[...] = jnp.ones((2, 8))
    assert not np.any(model.critic.trunk.blocks[0].query.lora_up_RO[...])


@pytest.mark.parametrize("lora", [False, True])
def test_parameters_taken_apart_and_put_together_are_the_same_tree(lora: bool) -> None:
    policy = described(lora)
    model = ActorCritic(policy)
    load(policy)
    model.begin()
    own = nnx.state(model, trained(model))
    again = together(*parted(model, own))
    assert jax.tree.structure(again) == jax.tree.structure(own)
    assert all(one is other for one, other in zip(jax.tree.leaves(again), jax.tree.leaves(own), strict=True))
    assert parted(policy, own) == (own, None)
    assert together(own, None) is own


def test_a_critic_lies_as_its_policy_does_on_a_mesh() -> None:
    policy = described()
    mesh = make_mesh(MeshConfig(fsdp=2))
    shard(policy, mesh)
    model = ActorCritic(policy)
    nnx.update(
        policy,
        jax.tree.map(
            lambda leaf, to: jax.device_put(leaf, to.sharding), nnx.state(Transformer(MODEL, nnx.Rngs(0))), nnx.state(policy)
        ),
    )
    model.begin()
    assert str(model.critic.trunk.embedding_VW.get_raw_value().sharding.spec) == "P('tensor', 'fsdp')"
    assert model.critic.head_W.get_raw_value().sharding.is_fully_replicated
    shard(model, mesh)
    assert str(model.critic.head_W.get_raw_value().sharding.spec) == "P('fsdp',)"
    assert undivided(model, mesh) == {}
