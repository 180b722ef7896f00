"""What a program of one's own shares: tasks, an environment and tools of the user's, and a policy to try them with.

The short way to ``Parts`` for the commonest case; whoever wants other shapes makes ``Parts`` themselves, as ``calculator.py``.
"""

import functools
from collections.abc import Callable, Sequence

from flax import nnx

from graphs.model_and_chat import describe_both
from graphs.model_source import find_model
from graphs.parts import Parts
from stages.agents.agent import Agent
from stages.agents.model_agent import ModelAgent
from stages.agents.tool_agent import ToolAgent
from stages.envs.environment import opening_messages
from stages.envs.housed import MakeEnv
from stages.envs.pool import EnvPool
from stages.models.config import ModelConfig
from stages.models.pretrained import fill_model
from stages.models.transformer import Transformer
from stages.records import Message, Task
from stages.rewards.environment import environment_reward
from stages.rewards.functions import RewardFunction
from stages.rollout.config import EngineConfig
from stages.rollout.engine import Engine
from stages.text.chat import ToolSpec
from stages.text.compact import CompactChat

_TINY = ModelConfig(
    vocab_size=1, width=32, num_layers=2, num_heads=4, num_kv_heads=4, head_size=8, mlp_width=64, context_length=128
)
"""A policy from scratch; its vocabulary is that of the chat."""


def own_parts(
    train: Sequence[Task],
    make_env: MakeEnv | EnvPool,
    *,
    heldout: Sequence[Task] = (),
    tools: Sequence[ToolSpec] = (),
    agent: Agent | None = None,
    reward: RewardFunction = environment_reward,
    opening: Callable[[Task], Sequence[Message]] = opening_messages,
    model: str | None = None,
    engine: EngineConfig | None = None,
) -> Parts:
    """Put one's own world around a policy.

    Args:
        train: tasks to learn from.
        make_env: makes the environment of one episode.
        heldout: tasks to evaluate on.
        tools: what the environment shows. For a policy from scratch each has one text as its argument.
        agent: holds conversations; ``None`` for one that calls tools where there are any, and else only speaks.
        reward: scores a finished episode; as it is, by the environment's own score.
        opening: the messages the environment opens with, to tell prompts that are too long before anything runs.
        model: a pretrained one, as ``headrace run grpo --model`` takes it; ``None`` for a tiny one from scratch, over a
            vocabulary of small letters and digits.
        engine: shapes of the engine; ``None`` for a small one.

    Raises:
        ValueError: there is no such model, or a tool cannot be written in the vocabulary.
    """
    source = None if model is None else find_model(model, None, "model")
    if source is None:
        chat = CompactChat(tools)
        policy = Transformer(_TINY.model_copy(update={"vocab_size": chat.vocab_size}), nnx.Rngs(0))
        load: Callable[[], object] = lambda: None  # noqa: E731 - nothing to load
        shapes = EngineConfig(slots=16, context_length=128)
    else:
        policy, chat = describe_both(source.path)
        load = functools.partial(fill_model, policy, source.path)
        shapes = EngineConfig(slots=32, context_length=512)
    return Parts(
        model=policy,
        load=load,
        engine=Engine(policy, engine or shapes, decode=chat.decode),
        chat=chat,
        agent=agent or (ToolAgent() if tools else ModelAgent()),
        make_env=make_env,
        opening=opening,
        tools=tools,
        reward=reward,
        train=train,
        heldout=heldout,
        source=source,
    )
