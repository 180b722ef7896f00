"""Gymnasium's FrozenLake, trained with GRPO: needs ``pip install 'headrace[gymnasium]'``.

A tiny policy reads one letter for the place it is at, and says one for where to go; the ice turns one step in ten aside. It
first imitates a guide half of whose steps are random, then learns from nothing but having reached the goal.
"""

import argparse
import json
import random
import tempfile
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from flax import nnx
from pydantic import BaseModel

from graphs.cli import main
from graphs.evaluate import EvaluateConfig
from graphs.parts import Parts
from graphs.program import Program, evaluation, training, warm_start
from graphs.rl_config import RlConfig
from graphs.sft import SftConfig
from stages.agents.model_agent import ModelAgent
from stages.agents.sampling import SamplingConfig
from stages.envs.adapters.gymnasium_env import GymnasiumEnv
from stages.envs.environment import opening_messages
from stages.models.config import ModelConfig
from stages.models.transformer import Transformer
from stages.records import Example, Message
from stages.rewards.environment import environment_reward
from stages.rollout.config import EngineConfig
from stages.rollout.engine import Engine
from stages.tasks.seeds import seeded_tasks
from stages.text.compact import CompactChat
from stages.train.config import TrainerConfig

PLACES, ACTIONS = "abcdefghijklmnop", "ldru"  # of the 4 x 4 lake; left, down, right, up
WAY = {"a": "d", "b": "r", "c": "d", "d": "l", "e": "d", "g": "d", "i": "r", "j": "d", "k": "d", "n": "r", "o": "r"}


class LakeConfig(BaseModel):
    steps: int = 8
    """Optimizer steps of the reinforcement learning."""


def lake(config: LakeConfig) -> Program:
    chat = CompactChat()
    shape = ModelConfig(
        vocab_size=chat.vocab_size, width=32, num_layers=1, num_heads=4, num_kv_heads=4, head_size=8, mlp_width=64,
        context_length=128,
    )  # fmt: skip
    model = Transformer(shape, nnx.Rngs(0))
    tasks = seeded_tasks("FrozenLake-v1", range(512), options={"success_rate": 0.9})
    parts = Parts(
        model=model,
        load=lambda: None,
        engine=Engine(model, EngineConfig(slots=64, context_length=128, prefill_rows=16, prefill_chunk=8)),
        chat=chat,
        agent=ModelAgent(),
        make_env=lambda task: GymnasiumEnv(
            actions={name: number for number, name in enumerate(ACTIONS)},
            describe=lambda env, place: PLACES[place],
            opening="{observation}",
        ),
        opening=opening_messages,
        tools=(),
        reward=environment_reward,
        train=tasks[:384],
        heldout=tasks[384:],
    )
    sampling = SamplingConfig(max_tokens_per_turn=4, max_turns=20)
    trainer = TrainerConfig(row_length=128, rows_per_microbatch=16, learning_rate=3e-3, warmup_steps=1)
    guided = SftConfig(steps=40, examples_per_step=32, trainer=trainer)
    rl = RlConfig(steps=config.steps, groups_per_step=16, group_size=8, max_concurrency=64, sampling=sampling, trainer=trainer)
    held_out = EvaluateConfig(num_tasks=128, sampling=sampling)
    # There is one lake: seeds decide where the ice turns a step, so no task of the two sets asks anything else.
    trained = replace(training(rl, parts), check=lambda: None)
    phases = (
        warm_start(guided, parts, walks(256)),
        evaluation("before", held_out, parts),
        trained,
        evaluation("after", held_out, parts),
    )
    return Program("lake", config, parts, phases, max_lag=0)


def walks(count: int) -> tuple[Example, ...]:
    """Places and steps of a guide that goes the way half of the time. What came of a step is of no matter to it."""
    chance, examples = random.Random(0), []
    for index in range(count):
        said: list[Message] = []
        for _ in range(12):
            place = chance.choice(list(WAY))
            step = WAY[place] if chance.random() < 0.5 else chance.choice(ACTIONS)
            said += [Message("user", place), Message("assistant", step)]
        examples.append(Example(f"walk-{index}", tuple(said)))
    return tuple(examples)


def play(steps: int) -> None:
    folder = Path(tempfile.mkdtemp())
    main(["run", f"{__file__}:lake", "--steps", str(steps), "--options.folder", str(folder)])
    summary = json.loads(next(folder.glob("*/summary.json")).read_text())
    before, after = summary["before"], summary["after"]
    print(f"reached the goal in {before:.0%} of held-out episodes before, in {after:.0%} after")
    print(f"at least a fifth more reach the goal: {after >= before + 0.2}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=LakeConfig().steps)
    arguments = parser.parse_args()
    if find_spec("gymnasium") is None:
        print("skipped: it needs pip install 'headrace[gymnasium]'")
    else:
        play(arguments.steps)
