"""A critic: what a decoder expects of the reward still to come. Beside a policy, or alone for the stage that scores with it.

The trunk is a decoder of the policy's shape with parameters of its own, which begin as the policy's. Where the policy has
adapters, so has the trunk, and the weights beneath them are the same ones.

Axes: B rows, T tokens of a row, W width.
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import NamedSharding
from jaxtyping import Array, Float, Int

from stages.models.config import ModelConfig
from stages.models.logprobs import Head
from stages.models.lora import TrainedParam, trained
from stages.models.mesh import replicated
from stages.models.transformer import Transformer

UNUSED = "unembedding_VW"
"""What a decoder has for its logits alone; a trunk has none."""


class Critic(nnx.Module):
    """A decoder with one number in place of logits.

    Its head, and with it the critic, is only described until ``begin``: a policy may be loaded long after it was described.

    Args:
        policy: whose shape it takes.
    """

    def __init__(self, policy: Transformer):
        graphdef, own, shared = nnx.split(policy, trained(policy), nnx.Param)
        self.trunk = nnx.merge(graphdef, jax.tree.map(lambda leaf: leaf, own), shared, copy=False)
        if not policy.config.tie_embeddings:
            delattr(self.trunk, UNUSED)
        self.head_W = TrainedParam(jax.ShapeDtypeStruct((policy.config.width,), jnp.float32), axes=("embed",))

    @property
    def config(self) -> ModelConfig:
        """Shape of the trunk."""
        return self.trunk.config

    @property
    def has_begun(self) -> bool:
        """Whether it has parameters."""
        return not isinstance(self.head_W.get_raw_value(), jax.ShapeDtypeStruct)

    def begin(self, policy: Transformer) -> None:
        """Take the policy's parameters as they are now, and a head of zeros, so that every value is 0. Nothing the second time.

        Args:
            policy: the one it was made of, loaded.
        """
        if self.has_begun:
            return
        own = nnx.state(policy, trained(policy))
        nnx.update(self.trunk, nnx.State({name: part for name, part in own.raw_mapping.items() if name != UNUSED}))
        norm = policy.final_norm_W.get_raw_value()
        place = replicated(norm.sharding.mesh) if isinstance(norm.sharding, NamedSharding) else None
        self.head_W.set_value(jnp.zeros(norm.shape, jnp.float32, device=place))

    def values(
        self,
        ids_BT: Int[Array, "B T"],
        positions_BT: Int[Array, "B T"],
        segments_BT: Int[Array, "B T"],
        remat: bool = False,
    ) -> Float[Array, "B T"]:
        """Value of what came before each token, float32 [B, T]. See ``Transformer.hidden`` for the arguments.

        Entry t is read off the token at t - 1, as a log-probability is. It is 0 where nothing came before: at the first token
        of a segment, and at padding.
        """
        hidden_BTW = self.trunk.hidden(ids_BT, positions_BT, segments_BT, remat)[:, :-1].astype(jnp.float32)
        said_BT = (segments_BT[:, 1:] == segments_BT[:, :-1]) & (segments_BT[:, 1:] > 0)
        return jnp.pad(jnp.where(said_BT, hidden_BTW @ self.head_W[...], 0.0), ((0, 0), (1, 0)))


class ActorCritic(nnx.Module):
    """A policy and its critic as one model, so that one optimizer step trains both.

    To an objective it is the policy, with ``values`` beside.

    Args:
        policy: sampled from, saved and exported without its critic.
    """

    def __init__(self, policy: Transformer):
        self.policy = policy
        self.critic = Critic(policy)

    @property
    def config(self) -> ModelConfig:
        """Shape of the policy."""
        return self.policy.config

    def begin(self) -> None:
        """Let the critic begin as the policy is now; nothing the second time."""
        self.critic.begin(self.policy)

    def hidden(
        self,
        ids_BT: Int[Array, "B T"],
        positions_BT: Int[Array, "B T"],
        segments_BT: Int[Array, "B T"],
        remat: bool = False,
    ) -> Float[Array, "B T W"]:
        """See ``Transformer.hidden``."""
        return self.policy.hidden(ids_BT, positions_BT, segments_BT, remat)

    @property
    def head(self) -> Head:
        """See ``Transformer.head``."""
        return self.policy.head

    def values(
        self,
        ids_BT: Int[Array, "B T"],
        positions_BT: Int[Array, "B T"],
        segments_BT: Int[Array, "B T"],
        remat: bool = False,
    ) -> Float[Array, "B T"]:
        """See ``Critic.values``."""
        return self.critic.values(ids_BT, positions_BT, segments_BT, remat)


def parted(model: nnx.Module, parameters: Any) -> tuple[Any, Any | None]:
    """(the policy's, the critic's) of parameters of a model; ``None`` for the latter where the model is a policy alone."""
    return (parameters["policy"], parameters["critic"]) if isinstance(model, ActorCritic) else (parameters, None)


def together(policy: Any, critic: Any | None) -> Any:
    """What ``parted`` took apart."""
    return policy if critic is None else nnx.State({"critic": critic.raw_mapping, "policy": policy.raw_mapping})
