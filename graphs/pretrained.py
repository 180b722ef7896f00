"""Programs over a pretrained language model: reinforcement learning, supervised training, evaluation.

Four programs over the world that ``pretrained_parts.py`` describes. The graphs themselves are those of ``rl.py``, ``sft.py``,
``dpo.py`` and ``evaluate.py``.
"""

from pathlib import Path
from typing import TypeVar

from graphs.dpo import DpoConfig
from graphs.parts import Parts
from graphs.pretrained_parts import PretrainedConfig, given, make_parts
from graphs.program import Program, evaluation, preferring, supervised, training
from graphs.rl_config import RlConfig
from graphs.seeds import seeded
from graphs.sft import SftConfig
from stages.tasks.examples import read_examples
from stages.tasks.preferences import read_preferences
from stages.train.config import TrainerConfig

ConfigType = TypeVar("ConfigType", bound=PretrainedConfig)


class RlProgramConfig(PretrainedConfig):
    """Evaluation, reinforcement learning, evaluation."""

    rl: RlConfig = RlConfig(max_concurrency=32, trainer=TrainerConfig(row_length=256))
    """Reinforcement learning."""


class SftProgramConfig(PretrainedConfig):
    """Supervised training, then evaluation."""

    demonstrations: Path | None = None
    """JSONL file of conversations; ``None`` is refused when the program is made."""
    sft: SftConfig = SftConfig(trainer=TrainerConfig(row_length=256, learning_rate=1e-5))
    """Supervised training."""


class DpoProgramConfig(PretrainedConfig):
    """Evaluation, training on preferences, evaluation."""

    preferences: Path | None = None
    """JSONL file of preferences; ``None`` is refused when the program is made."""
    dpo: DpoConfig = DpoConfig()
    """Training on preferences."""


class EvaluateProgramConfig(PretrainedConfig):
    """Evaluation alone."""


def rl_program(asked: RlProgramConfig) -> Program:
    """Reinforcement learning with held-out evaluation before and after."""
    config = seeded(asked)
    parts = make_parts(config)
    phases = (
        evaluation("heldout_before", config.evaluate, parts),
        training(config.rl, parts),
        evaluation("heldout_after", config.evaluate, parts),
    )
    return Program("grpo", _pinned(asked, parts), parts, phases, config.rl.max_lag)


def sft_program(asked: SftProgramConfig) -> Program:
    """Supervised training with held-out evaluation after it."""
    config = seeded(asked)
    examples = read_examples(given(config.demonstrations, "demonstrations", "a JSONL file of conversations"))
    parts = make_parts(config)
    phases = (supervised(config.sft, parts, examples), evaluation("heldout_after", config.evaluate, parts))
    return Program("sft", _pinned(asked, parts), parts, phases)


def dpo_program(asked: DpoProgramConfig) -> Program:
    """Training on preferences with held-out evaluation before and after."""
    config = seeded(asked)
    preferences = read_preferences(given(config.preferences, "preferences", "a JSONL file of preferences"))
    parts = make_parts(config)
    phases = (
        evaluation("heldout_before", config.evaluate, parts),
        preferring(config.dpo, parts, preferences),
        evaluation("heldout_after", config.evaluate, parts),
    )
    return Program("dpo", _pinned(asked, parts), parts, phases)


def evaluate_program(asked: EvaluateProgramConfig) -> Program:
    """Held-out evaluation of a pretrained model."""
    config = seeded(asked)
    parts = make_parts(config)
    return Program("evaluate", _pinned(asked, parts), parts, (evaluation("heldout", config.evaluate, parts, main=True),))


def _pinned(config: ConfigType, parts: Parts) -> ConfigType:
    """The config with the commit that a branch stands for now, so that whatever goes on from this run takes the same one."""
    if parts.source is None or parts.source.commit is None:
        return config
    return config.model_copy(update={"policy": config.policy.model_copy(update={"revision": parts.source.commit})})
