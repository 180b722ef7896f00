"""What the graphs of one program share: the policy, its conversation format, the agent, its world, and the tasks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from flax import nnx
from jax.sharding import Mesh

from graphs.model_source import ModelSource
from graphs.teacher import Teacher
from stages.agents.agent import Agent
from stages.envs.housed import MakeEnv
from stages.envs.pool import EnvPool
from stages.models.transformer import Transformer
from stages.records import Message, Task, Weights
from stages.rewards.functions import Function
from stages.rewards.stage import Rewards
from stages.rollout.engine import Engine
from stages.rollout.http.engine import HttpEngine
from stages.text.chat import Chat, ToolSpec
from stages.train.samples import Samples


@dataclass(frozen=True)
class Parts:
    """Built once for a program, before its graphs.

    Attributes:
        model: the policy; trainers write its parameters back when they close.
        load: fills in the parameters, once everything is checked; does nothing for a model that has them.
        engine: samples from it, here or on servers.
        chat: format of conversations.
        agent: holds them.
        make_env: makes the environment of one episode, or lends it.
        opening: the messages a conversation on a task begins with.
        tools: what environments show the model.
        reward: scores a finished episode: a function, or several by name, each with its weight.
        train: tasks to learn from.
        heldout: tasks to evaluate on.
        source: where a pretrained policy comes from; ``None`` for one that is trained from scratch.
        reference_mesh: devices of a reference and of a teacher; ``None`` for those of the model.
        teacher: what a policy may be distilled from; ``None`` without.
        samples: episodes that trainers choose to be looked at, once a run asks for some.
    """

    model: Transformer
    load: Callable[[], object]
    engine: Engine | HttpEngine
    chat: Chat
    agent: Agent
    make_env: MakeEnv | EnvPool
    opening: Callable[[Task], Sequence[Message]]
    tools: Sequence[ToolSpec]
    reward: Function | Mapping[str, tuple[Function, float]]
    train: Sequence[Task]
    heldout: Sequence[Task]
    source: ModelSource | None = None
    reference_mesh: Mesh | None = None
    teacher: Teacher | None = None
    samples: Samples = field(default_factory=Samples)

    def rewards(self, **more: tuple[Function, float]) -> Rewards:
        """The reward stage.

        Args:
            more: functions that only training has, with their weights.
        """
        named = self.reward if isinstance(self.reward, Mapping) else {"answer": (self.reward, 1.0)}
        return Rewards({**named, **more})

    async def load_engine(self) -> None:
        """Let the engine sample from the model as it is now."""
        await self.engine.load(Weights(nnx.state(self.model, nnx.Param)), self.engine.statistics().version)
