"""``headrace`` in processes that may be killed; see ``forks.py``. Its program ``counted`` is the calculator, tiny, with
held-out evaluation before, during and after, an environment that counts, fails by number and answers late by chance.
"""

import os
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
from flax import nnx
from forks import appended, serve

from flow import Graph
from flow.saving._points import reach
from graphs.bench.witnessed import SeenStep, targets_of, witnessed
from graphs.calculator import CalculatorConfig
from graphs.catalogue import CATALOGUE, Entry
from graphs.cli import main as headrace
from graphs.evaluate import EvaluateConfig
from graphs.heldout_config import HeldoutConfig
from graphs.parts import Parts
from graphs.program import Program, evaluation, training, warm_start
from graphs.rl_config import RlConfig
from graphs.sft import SftConfig
from stages.agents.sampling import SamplingConfig
from stages.agents.tool_agent import ToolAgent
from stages.envs.environment import Opening, Reply, opening_messages
from stages.envs.housed import on_loop
from stages.envs.tool_env import ToolEnv
from stages.models.config import ModelConfig
from stages.models.transformer import Transformer
from stages.records import Episode, Message, Task
from stages.rewards.answers import final_text
from stages.rollout.config import EngineConfig
from stages.rollout.engine import Engine
from stages.tasks.arithmetic import DEMONSTRATIONS, arithmetic_tasks
from stages.tasks.examples import read_examples
from stages.text.compact import CompactChat
from stages.tools.calculator import calculator_tool
from stages.tools.context import tool_context
from stages.tools.tool import Tool, ToolAnswer, needs_of
from stages.train.config import TrainerConfig


class LateTool:
    """A tool that answers after a time that no seed decides."""

    def __init__(self, tool: Tool, most_s: float) -> None:
        self.name, self.description, self.parameters, self.needs = tool.name, tool.description, tool.parameters, needs_of(tool)
        self._tool, self._most_s, self._clock = tool, most_s, random.SystemRandom()

    async def call(self, arguments: Mapping[str, Any], key: tuple[int, ...]) -> ToolAnswer:
        await anyio.sleep(self._clock.random() ** 3 * self._most_s)
        return await self._tool.call(arguments, key)


class CountedEnv:
    """An environment that writes down each time it is begun and ended."""

    def __init__(self, env: ToolEnv) -> None:
        self._env, self._name, self._fails = env, "", False

    async def reset(self, task: Task, key: tuple[int, int, int, int]) -> Opening:
        seed, birth, member, retry = key
        self._name = f"{seed} {task.id} {birth} {member} {retry} {tool_context().attempt}"
        appended("begun", self._name)
        self._fails = retry == 0 and (7 * birth + member) % 13 == 0
        return await self._env.reset(task, key)

    async def step(self, message: Message) -> Reply:
        if self._fails:
            raise RuntimeError("out of luck")
        return await self._env.step(message)

    async def score(self) -> dict[str, float] | None:
        return await self._env.score()

    async def close(self) -> None:
        await self._env.close()
        appended("ended", self._name)


def letters(episode: Episode) -> float:
    """Something that tells the members of a group apart, whatever they say."""
    return sum((final_text(episode) or "").encode()) % 3 / 2


TRAINER = TrainerConfig(row_length=64, rows_per_microbatch=4, learning_rate=1e-2)
SAMPLING = SamplingConfig(max_tokens_per_turn=8, max_turns=3)
TINY = CalculatorConfig(
    num_train_tasks=64,
    model=ModelConfig(
        vocab_size=CalculatorConfig().model.vocab_size, width=16, num_layers=1, num_heads=2, num_kv_heads=1, head_size=8,
        mlp_width=32, context_length=64,
    ),
    engine=EngineConfig(slots=16, context_length=64, prefill_rows=8, prefill_chunk=16),
    warm_start=SftConfig(steps=9, examples_per_step=32, trainer=TRAINER.model_copy(update={"learning_rate": 2e-2})),
    evaluate=EvaluateConfig(num_tasks=8, max_concurrency=8, sampling=SAMPLING.model_copy(update={"seed": 1})),
    rl=RlConfig(
        steps=5, groups_per_step=3, group_size=4, max_concurrency=8, trainer=TRAINER, sampling=SAMPLING,
        heldout=HeldoutConfig(every=3, num_tasks=6, max_concurrency=4, seed=2),
    ),
)  # fmt: skip


def told(make: Callable[[Path | None], Graph]) -> Callable[[Path | None], Graph]:
    """The graph with a trainer that writes down what each step trained. What a kill undid comes again."""

    def see(step: SeenStep) -> None:
        appended("trained", step.number, *(name.replace(" ", "_") for name in targets_of(step)))

    return lambda folder: witnessed(make(folder), see)


def counted(config: CalculatorConfig) -> Program:
    """The calculator, small, counted, and late by chance."""
    tool = LateTool(calculator_tool(), config.delay.max_s)
    model = nnx.eval_shape(lambda: Transformer(config.model, nnx.Rngs(0)))
    chat = CompactChat([tool])
    parts = Parts(
        model=model,
        load=lambda: nnx.update(model, nnx.state(Transformer(config.model, nnx.Rngs(config.seed)), nnx.Param)),
        engine=Engine(model, config.engine, decode=chat.decode),
        chat=chat,
        agent=ToolAgent(),
        make_env=on_loop(lambda task: CountedEnv(ToolEnv([tool]))),
        opening=opening_messages,
        tools=(tool,),
        reward=letters,
        train=arithmetic_tasks(config.tasks, 0, config.num_train_tasks, "train"),
        heldout=arithmetic_tasks(config.tasks, 0, config.evaluate.num_tasks, "heldout"),
    )
    rl = training(config.rl, parts)
    phases = (
        warm_start(config.warm_start, parts, read_examples(DEMONSTRATIONS)[:200]),
        evaluation("heldout_before", config.evaluate, parts),
        replace(rl, make=told(rl.make)),
        evaluation("heldout_after", config.evaluate, parts),
    )
    return Program("counted", config, parts, phases, config.rl.max_lag)


CATALOGUE["counted"] = Entry("what is killed", CalculatorConfig, counted, TINY)


def truncate(path: Path, size: int) -> None:
    """What takes back the rows behind a commit calls this, and nothing else does; it may die on either side."""
    reach("rows.moved")
    TRUNCATE(path, size)
    reach("rows.cut")


TRUNCATE, os.truncate = os.truncate, truncate

if __name__ == "__main__":
    serve(headrace)
