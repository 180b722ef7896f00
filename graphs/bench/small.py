"""The calculator with a policy so small that a run takes a second: everything real, nothing learned. For experiments."""

from graphs.calculator import VOCABULARY, CalculatorConfig
from graphs.rl_config import RlConfig
from stages.agents.sampling import SamplingConfig
from stages.models.config import ModelConfig
from stages.rollout.config import EngineConfig
from stages.tools.delay import DelayConfig
from stages.train.config import TrainerConfig

ROW = 64
"""Tokens of the longest episode."""
SAMPLING = SamplingConfig(max_tokens_per_turn=8, max_turns=3)
TRAINER = TrainerConfig(row_length=ROW, rows_per_microbatch=4, learning_rate=1e-2, epsilon=1e-3)
"""With an epsilon that the least gradients do not exceed: Adam would make whole steps of what rounding left of them."""
MODEL = ModelConfig(
    vocab_size=VOCABULARY, width=16, num_layers=1, num_heads=2, num_kv_heads=1, head_size=8, mlp_width=32, context_length=ROW
)
SMALL = CalculatorConfig(
    num_train_tasks=64,
    delay=DelayConfig(scale_s=0.002, max_s=0.05),
    model=MODEL,
    engine=EngineConfig(slots=16, context_length=ROW, prefill_rows=8, prefill_chunk=16, eviction="never"),
    rl=RlConfig(steps=2, groups_per_step=3, group_size=4, max_concurrency=16, sampling=SAMPLING, trainer=TRAINER),
)
