"""Settings of the demonstration on a real language model: SmolLM2-135M-Instruct learns to add two-digit numbers."""

from graphs.evaluate import EvaluateConfig
from graphs.grpo import GrpoConfig
from graphs.pretrained import GrpoProgramConfig, PolicyConfig, TasksConfig
from stages.agents.sampling import SamplingConfig
from stages.rollout.config import EngineConfig
from stages.tasks.arithmetic import ArithmeticConfig
from stages.train.config import TrainerConfig

SMOLLM2 = GrpoProgramConfig(
    policy=PolicyConfig(
        engine=EngineConfig(slots=32, context_length=128, prefill_rows=8, prefill_chunk=32),
        system="Answer with the number only.",
    ),
    tasks=TasksConfig(arithmetic=ArithmeticConfig(operators="+", digits=(1, 1), prompt="What is {expression}?")),
    evaluate=EvaluateConfig(num_tasks=64, max_concurrency=32, sampling=SamplingConfig(max_tokens_per_turn=16, seed=1)),
    grpo=GrpoConfig(
        steps=8,
        groups_per_step=8,
        group_size=8,
        max_concurrency=32,
        sampling=SamplingConfig(max_tokens_per_turn=16),
        trainer=TrainerConfig(row_length=128, rows_per_microbatch=4, learning_rate=1e-5),
    ),
)
