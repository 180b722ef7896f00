"""headrace on the agentic workload, in a process of its own. Arguments: workload, events, folder of weights, JSON of settings.

With ``write`` in place of settings it writes the model that all systems read: one that was shown random words, so that it says
some letters and ends its turn. With ``score`` it plays the tasks with each of the weights that lie in the folder, and tells
what they earn; so all systems are scored by one. Settings: ``max_lag``, ``barrier``, ``concurrency``, ``slots``.
"""

import asyncio
import json
import os
import random
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import jax
from agentic_world import Events, Play, Workload, read
from flax import nnx

sys.path.insert(0, str(Path(__file__).parents[3]))
from agentic_chat import LettersChat

from flow import Context, Run
from graphs.bench.around import Around
from graphs.evaluate import EvaluateConfig, evaluate
from graphs.parts import Parts
from graphs.rl import rl
from graphs.rl_config import RlConfig
from graphs.sft import SftConfig, sft
from stages.agents.model_agent import ModelAgent
from stages.agents.sampling import SamplingConfig
from stages.envs.environment import Opening, Reply, opening_messages
from stages.envs.housed import on_loop
from stages.losses.policy import PolicyLoss
from stages.models.config import ModelConfig, RotaryConfig
from stages.models.huggingface import fill_from_huggingface, load_huggingface, write_huggingface
from stages.models.transformer import Transformer
from stages.records import Batch, Example, Message, Status, Task, Weights
from stages.rewards.environment import environment_reward
from stages.rollout.config import EngineConfig
from stages.rollout.engine import Engine
from stages.scores import Scores
from stages.train.config import TrainerConfig

ROTARY_BASE = 1_000_000.0
"""What tunix's Llama turns positions with, whatever its configuration says."""
WRITTEN = 256
"""Tokens of the longest conversation that the policy is shown, and of the longest that it may have."""
MEDIAN, SHORTEST, LONGEST = 12, 4, 96
"""Letters of a turn that it is shown."""
COMPILED = "/jax/core/compile/backend_compile_duration"


def main(workload: str, events: str, folder: str, settings: str) -> None:
    """Write the model, score, or train."""
    if settings == "write":
        asyncio.run(write(read(workload), Path(folder)))
        return
    told = Events(events)
    if settings == "score":
        asyncio.run(score(read(workload), told, sorted(Path(folder).iterdir())))
        return
    told.tell("started")
    jax.monitoring.register_event_duration_secs_listener(
        lambda name, seconds, **_: told.tell("compiled", seconds=seconds) if name == COMPILED else None
    )
    asyncio.run(train(read(workload), told, Path(folder), **json.loads(settings)))


async def train(
    workload: Workload, events: Events, folder: Path, *, max_lag: int, barrier: str, concurrency: int, slots: int
) -> None:
    """All updates."""
    context = workload.prompt_tokens + workload.response_tokens
    engine = EngineConfig(slots=slots, context_length=context, prefill_rows=32, prefill_chunk=16)
    parts = make_parts(workload, load_huggingface(Path(workload.model)), engine, events)
    config = RlConfig(
        steps=workload.updates,
        groups_per_step=workload.groups_per_update,
        group_size=workload.group_size,
        max_lag=max_lag,
        barrier=barrier,  # type: ignore[arg-type]
        max_concurrency=concurrency,
        seed=workload.seed,
        sampling=SamplingConfig(max_tokens_per_turn=workload.response_tokens, max_turns=workload.turns, seed=workload.seed),
        loss=PolicyLoss(clip_low=0.2),
        trainer=rates(workload, context),
    )
    graph = rl(config, parts)
    watcher = Watcher(events)
    trainer: Any = graph.spec().nodes["trainer"].stage
    graph = graph.replace("trainer", Told(trainer, watcher.tasks, events))
    async with parts.engine:
        await Run(graph.build(quiet=True), watchers=(watcher,)).finish()
    events.tell("ended")
    write_huggingface(parts.model, folder)


async def score(workload: Workload, events: Events, folders: Sequence[Path]) -> None:
    """What the weights in some folders earn, mean over the tasks, each played once for every member of a group."""
    context = workload.prompt_tokens + workload.response_tokens
    model = load_huggingface(Path(workload.model))
    parts = make_parts(
        workload, model, EngineConfig(slots=32, context_length=context, prefill_rows=32, prefill_chunk=16), events
    )
    parts = replace(parts, heldout=parts.train)
    sampling = SamplingConfig(max_tokens_per_turn=workload.response_tokens, max_turns=workload.turns, seed=workload.seed)
    config = EvaluateConfig(num_tasks=len(parts.heldout), attempts=workload.group_size, sampling=sampling)
    async with parts.engine:
        for weights in folders:
            fill_from_huggingface(model, weights)
            await parts.load_engine()
            scores = Scores(len(parts.heldout), config.attempts)
            await Run(evaluate(config, parts, scores).build(quiet=True)).finish()
            rewards = scores.state().rewards
            events.tell("scored", name=weights.name, score=sum(rewards) / len(rewards))


def rates(workload: Workload, row: int) -> TrainerConfig:
    """The optimizer that all systems have, on rows of ours."""
    return TrainerConfig(
        row_length=row,
        rows_per_microbatch=16,
        split_last=4,
        learning_rate=workload.learning_rate,
        beta2=0.999,
        max_grad_norm=1.0,
    )


def make_parts(workload: Workload, model: Transformer, engine: EngineConfig, events: Events) -> Parts:
    """The policy and its world."""
    chat = LettersChat(workload.tokens)
    named = {task.name: task for task in workload.tasks}
    return Parts(
        model=model,
        load=lambda: None,
        engine=Engine(model, engine, decode=chat.decode),
        chat=chat,
        agent=ModelAgent(),
        make_env=on_loop(lambda task: World(workload, named[task.id], events)),
        opening=opening_messages,
        tools=(),
        reward=environment_reward,
        train=[Task(task.name, task.prompt) for task in workload.tasks],
        heldout=(),
    )


class World:
    """The environment."""

    def __init__(self, workload: Workload, task: Any, events: Events) -> None:
        self._workload, self._task, self._events = workload, task, events

    async def reset(self, task: Task, key: tuple[int, int, int, int]) -> Opening:
        """See ``Environment.reset``."""
        _, _, member, retry = key
        self._play = Play(self._workload, self._task, member, self._events, retry)
        return Opening((Message("user", self._play.begin()),))

    async def step(self, message: Message) -> Reply:
        """See ``Environment.step``."""
        seconds, answer = self._play.hear(message.content)
        await anyio.sleep(seconds)
        return Reply(end=Status.FINISHED) if answer is None else Reply((Message("user", answer),))

    async def score(self) -> dict[str, float]:
        """See ``Environment.score``."""
        return {"reward": self._play.end()}

    async def close(self) -> None:
        """Nothing."""


class Watcher:
    """Tells how much was sampled, and knows which group is about which task."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self.tasks: dict[int, str] = {}

    def committed(self, node: str, values: Sequence[Any]) -> None:
        """See ``flow.Watcher``."""
        if node == "episodes":
            for episode in values:
                self.tasks[episode.birth] = episode.task.id
                self._events.tell("sampled", tokens=episode.num_sampled)

    def reported(self, node: str, row: Any) -> None:
        """Nothing."""


class Told(Around):
    """A trainer whose times are told. Around it as a collector, on a thread of its own as that is.

    Args:
        trainer: trains.
        tasks: by birth of the group.
        events: gets to know of it.
    """

    def __init__(self, trainer: Any, tasks: dict[int, str], events: Events) -> None:
        super().__init__(trainer)
        self._tasks, self._events = tasks, events
        self._given: list[str] = []

    def add(self, batch: Batch, context: Context) -> None:
        """See ``Trainer.add``."""
        self._given.append(self._tasks[batch.birth])
        with self._events.span("train"):
            self.trainer.add(batch, context)

    def finish(self, context: Context) -> Weights:
        """See ``Trainer.finish``."""
        with self._events.span("train"):
            weights = self.trainer.finish(context)
        given, self._given = self._given, []
        self._events.tell("updated", tasks=given)
        return weights


async def write(workload: Workload, folder: Path) -> None:
    """Make the model, show it words, and write it."""
    shape = ModelConfig(
        vocab_size=len(workload.tokens), width=128, num_layers=4, num_heads=4, num_kv_heads=2, head_size=32, mlp_width=384,
        context_length=WRITTEN, rotary=RotaryConfig(base=ROTARY_BASE),
    )  # fmt: skip
    model = Transformer(shape, nnx.Rngs(workload.seed))
    parts = make_parts(workload, model, EngineConfig(), Events(os.devnull))
    rate = rates(workload, WRITTEN).model_copy(update={"learning_rate": 3e-3, "warmup_steps": 5})
    config = SftConfig(steps=60, examples_per_step=32, seed=0, trainer=rate)
    await Run(sft(config, parts, examples(512, workload.spread)).build(quiet=True)).finish()
    write_huggingface(model, folder)


def examples(num: int, spread: float) -> tuple[Example, ...]:
    """Conversations in which random letters are said, few or many, with a tail as heavy as ``Workload.spread``."""
    chance = random.Random(0)

    def word(length: int) -> str:
        return "".join(chance.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(length))

    def said() -> str:
        return word(min(max(round(MEDIAN * chance.lognormvariate(0.0, spread)), SHORTEST), LONGEST))

    return tuple(
        Example(
            f"example {n}",
            (Message("user", word(6)), Message("assistant", said()), Message("user", "2 of 11"), Message("assistant", said())),
        )
        for n in range(num)
    )


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    main(*sys.argv[1:])
