"""A calculator so small that minutes teach it, for experiments that ask what a change does to what is learned. Parts only.

Products of two digits and one, and a decoder of two layers: after half a minute of a warm start about half of its answers are
right, and some twenty steps of reinforcement learning make most of them right.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
from flax import nnx

from flow import Run
from graphs.calculator import VOCABULARY, CalculatorConfig, calculator
from graphs.evaluate import EvaluateConfig
from graphs.parts import Parts
from graphs.program import evaluation
from graphs.rl_config import RlConfig
from graphs.seeds import seeded
from graphs.sft import SftConfig, sft
from stages.agents.sampling import SamplingConfig
from stages.models.config import ModelConfig, RotaryConfig
from stages.rollout.config import EngineConfig
from stages.scores import Score
from stages.tasks.arithmetic import ArithmeticConfig, demonstrations
from stages.tools.delay import DelayConfig
from stages.train.config import TrainerConfig

SAMPLING = SamplingConfig(max_tokens_per_turn=8, max_turns=3)
CONTEXT = 48
ROW = 64
"""Tokens of the longest episode, and more."""
SHARE_WITH_TOOL = 0.35
"""Share of the demonstrations that ask the tool: what reinforcement learning has to make the rule."""


def learnable(
    *, seed: int, warm_steps: int, delay: DelayConfig, slots: int, evaluate: EvaluateConfig, rl: RlConfig, kept: int = 0
) -> CalculatorConfig:
    """Settings of the calculator, with a number for every seed.

    Args:
        seed: of all that is drawn.
        warm_steps: of the warm start.
        delay: of the tool.
        slots: of the engine.
        evaluate: the score at the end.
        rl: reinforcement learning.
        kept: caches of the engine beside its slots.
    """
    warm = TrainerConfig(
        row_length=ROW, rows_per_microbatch=8, learning_rate=3e-3, warmup_steps=10, schedule="cosine",
        decay_steps=max(warm_steps - 10, 1), final_share=0.05,
    )  # fmt: skip
    return seeded(
        CalculatorConfig(
            seed=seed,
            tasks=ArithmeticConfig(digits=(2, 1)),
            num_train_tasks=1024,
            delay=delay,
            model=ModelConfig(
                vocab_size=VOCABULARY, width=64, num_layers=2, num_heads=4, num_kv_heads=4, head_size=16, mlp_width=192,
                rotary=RotaryConfig(base=10.0), context_length=CONTEXT,
            ),
            engine=EngineConfig(slots=slots, kept=kept, context_length=CONTEXT, prefill_rows=16, prefill_chunk=16),
            warm_start=SftConfig(steps=warm_steps, examples_per_step=32, trainer=warm),
            evaluate=evaluate,
            rl=rl,
        )
    )  # fmt: skip


def trainer_of(learning_rate: float) -> TrainerConfig:
    """Optimizer of its reinforcement learning."""
    return TrainerConfig(
        row_length=ROW, rows_per_microbatch=8, learning_rate=learning_rate, warmup_steps=2, epsilon=1e-2, beta2=0.99
    )


def parts_of(config: CalculatorConfig) -> Parts:
    """Model, engine and tasks; the model has nothing in it before ``load``."""
    parts = calculator(config).parts
    assert parts is not None
    return parts


async def warm(config: CalculatorConfig, parts: Parts) -> None:
    """Teach the model by demonstrations."""
    parts.load()
    examples = demonstrations(config.tasks, 0, 1000, SHARE_WITH_TOOL)
    await Run(sft(config.warm_start, parts, examples).build(quiet=True)).finish()


def beginning_here(parts: Parts) -> Parts:
    """The parts, whose ``load`` puts the model back to what it is now."""
    now = jax.tree.map(jnp.array, nnx.state(parts.model, nnx.Param))
    return replace(parts, load=lambda: nnx.update(parts.model, jax.tree.map(jnp.array, now)))


async def scored(config: CalculatorConfig, parts: Parts) -> Score:
    """The model as it is, on the held-out tasks."""
    phase = evaluation("score", config.evaluate, parts)
    graph = phase.make(None)
    await phase.prepare()
    await Run(graph.build(quiet=True)).finish()
    return phase.result()["score_detail"]
