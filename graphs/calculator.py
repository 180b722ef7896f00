"""The demonstration: a small policy, trained from scratch here, learns to use a calculator in several turns.

A short supervised warm start on demonstrations most of which are bad, then GRPO, where only a right answer earns a reward.
"""

from typing import Literal

from flax import nnx
from pydantic import BaseModel, ConfigDict, Field

from graphs.engines import make_engine
from graphs.evaluate import EvaluateConfig
from graphs.parts import Parts
from graphs.program import Program, evaluation, training, warm_start
from graphs.rl_config import RlConfig
from graphs.seeds import seeded
from graphs.sft import SftConfig
from stages.agents.sampling import SamplingConfig
from stages.agents.tool_agent import ToolAgent
from stages.envs.environment import opening_messages
from stages.envs.housed import on_loop
from stages.envs.tool_env import ToolEnv
from stages.models.config import ModelConfig, RotaryConfig
from stages.models.transformer import Transformer
from stages.rewards.answers import exact_answer
from stages.rollout.config import EngineConfig
from stages.rollout.http.config import HttpConfig
from stages.tasks.arithmetic import DEMONSTRATIONS, ArithmeticConfig, arithmetic_tasks
from stages.tasks.examples import read_examples
from stages.text.compact import CompactChat
from stages.tools.calculator import calculator_tool
from stages.tools.delay import DelayConfig, DelayedTool
from stages.tools.disabled import DisabledTool
from stages.train.config import TrainerConfig

VOCABULARY = CompactChat([calculator_tool()]).vocab_size
SAMPLING = SamplingConfig(max_tokens_per_turn=16, max_turns=3)


class CalculatorConfig(BaseModel):
    """The calculator demonstration."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    seed: int = Field(default=0, ge=0, lt=2**31)
    """Seed of the run: decides the first parameters, and every part's seed that is not given follows from it."""
    tool: Literal["on", "off"] = "on"
    """``off``: the calculator answers every call with an error, a control."""
    rewards: Literal["true", "shuffled"] = "true"
    """``shuffled``: rewards say nothing about the episode they are given to, a control."""
    tasks: ArithmeticConfig = ArithmeticConfig()
    """Which questions there are."""
    num_train_tasks: int = Field(default=4096, ge=1)
    """Questions to learn from."""
    delay: DelayConfig = DelayConfig(scale_s=0.01, shape=1.5, max_s=0.5)
    """How long the calculator takes."""
    model: ModelConfig = ModelConfig(
        vocab_size=VOCABULARY, width=128, num_layers=4, num_heads=8, num_kv_heads=8, head_size=16, mlp_width=384,
        rotary=RotaryConfig(base=10.0), context_length=64,
    )  # fmt: skip
    """Shape of the policy. The base of its rotary positions suits episodes of some 30 tokens."""
    engine: EngineConfig = EngineConfig(slots=128, context_length=64, prefill_rows=32, prefill_chunk=16)
    """Shapes of the engine."""
    servers: HttpConfig | None = None
    """Servers that sample in place of an engine in this process; ``None`` for that engine."""
    warm_start: SftConfig = SftConfig(
        steps=400,
        examples_per_step=44,
        trainer=TrainerConfig(
            row_length=128, rows_per_microbatch=8, learning_rate=3e-3, warmup_steps=10, schedule="cosine", decay_steps=390,
            final_share=0.05,
        ),
    )  # fmt: skip
    """Supervised training on the demonstrations."""
    evaluate: EvaluateConfig = EvaluateConfig(num_tasks=512, max_concurrency=128, sampling=SAMPLING)
    """Held-out evaluation, before and after."""
    rl: RlConfig = RlConfig(
        steps=60,
        groups_per_step=32,
        group_size=8,
        max_concurrency=128,
        sampling=SAMPLING,
        trainer=TrainerConfig(
            row_length=128, rows_per_microbatch=8, learning_rate=2e-3, warmup_steps=3, schedule="cosine", decay_steps=57,
            epsilon=1e-2, beta2=0.99,
        ),
    )  # fmt: skip
    """Reinforcement learning."""


def calculator(asked: CalculatorConfig) -> Program:
    """Put the demonstration together."""
    config = seeded(asked)
    tool = DelayedTool(DisabledTool(calculator_tool()) if config.tool == "off" else calculator_tool(), config.delay)
    model = nnx.eval_shape(lambda: Transformer(config.model, nnx.Rngs(0)))
    chat = CompactChat([tool])
    parts = Parts(
        model=model,
        load=lambda: nnx.update(model, nnx.state(Transformer(config.model, nnx.Rngs(config.seed)), nnx.Param)),
        engine=make_engine(model, config.engine, chat, config.servers),
        chat=chat,
        agent=ToolAgent(),
        make_env=on_loop(lambda task: ToolEnv([tool])),
        opening=opening_messages,
        tools=(tool,),
        reward=exact_answer,
        train=arithmetic_tasks(config.tasks, 0, config.num_train_tasks, "train"),
        heldout=arithmetic_tasks(config.tasks, 0, config.evaluate.num_tasks, "heldout"),
    )
    return Program(
        name="calculator",
        config=asked,
        parts=parts,
        max_lag=config.rl.max_lag,
        phases=(
            warm_start(config.warm_start, parts, read_examples(DEMONSTRATIONS)),
            evaluation("heldout_before", config.evaluate, parts),
            training(config.rl, parts, shuffled=config.rewards == "shuffled"),
            evaluation("heldout_after", config.evaluate, parts),
        ),
    )
