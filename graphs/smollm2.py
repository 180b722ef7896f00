"""Settings of the demonstration on a real language model: SmolLM2-135M-Instruct learns to give a sum and stop."""

from graphs.evaluate import EvaluateConfig
from graphs.pretrained import RlProgramConfig
from graphs.pretrained_parts import PolicyConfig, TasksConfig
from graphs.rl_config import RlConfig
from stages.agents.sampling import SamplingConfig
from stages.rollout.config import EngineConfig
from stages.tasks.arithmetic import ArithmeticConfig
from stages.train.config import TrainerConfig

SAMPLING = SamplingConfig(temperature=0.7, max_tokens_per_turn=24)

SMOLLM2 = RlProgramConfig(
    policy=PolicyConfig(
        engine=EngineConfig(slots=32, context_length=64),
        system="You are good at math.",
    ),
    tasks=TasksConfig(arithmetic=ArithmeticConfig(operators="+", digits=(1, 1), prompt="{expression} = ?", heldout_share=0.3)),
    evaluate=EvaluateConfig(num_tasks=64, max_concurrency=32, sampling=SAMPLING),
    rl=RlConfig(
        steps=10,
        groups_per_step=4,
        group_size=8,
        max_concurrency=32,
        sampling=SAMPLING,
        trainer=TrainerConfig(row_length=128, rows_per_microbatch=4, learning_rate=2e-5, warmup_steps=1),
    ),
)
