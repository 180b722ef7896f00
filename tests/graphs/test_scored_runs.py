"""Runs over a pretrained model that asks others about its groups, from settings to what is saved, loaded again and exported."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flax import nnx

from graphs.cli import main
from graphs.evaluate import EvaluateConfig
from graphs.placing import PlacingConfig
from graphs.pretrained import RlProgramConfig, rl_program
from graphs.pretrained_parts import PolicyConfig
from graphs.program import Program
from graphs.rl_config import RlConfig
from graphs.runs.saved import saved_program
from graphs.scoring_config import CriticConfig, ReferenceConfig, TeacherConfig
from stages.advantages.config import AdvantagesConfig
from stages.agents.sampling import SamplingConfig
from stages.checkpoint.store import PARAMETERS, load_arrays, parameters_of, with_parameters
from stages.losses.policy import PolicyLoss
from stages.models.huggingface import load_huggingface
from stages.models.lora import LoraConfig, merged
from stages.models.mesh import MeshConfig
from stages.models.names import named_leaves
from stages.rollout.config import EngineConfig
from stages.train.config import TrainerConfig
from stages.train.following import FollowConfig

ENGINE = EngineConfig(slots=4, prefill_rows=2, prefill_chunk=8, context_length=64)
EVALUATE = EvaluateConfig(num_tasks=2, sampling=SamplingConfig(max_tokens_per_turn=4))
RL = {
    "steps": 2, "groups_per_step": 2, "group_size": 2, "sampling": SamplingConfig(max_tokens_per_turn=6),
    "trainer": TrainerConfig(row_length=64, rows_per_microbatch=2, learning_rate=1e-2),
}  # fmt: skip

pytestmark = pytest.mark.slow  # Each runs a whole program.


def program(folder: Path, placing: PlacingConfig, taught_by: str | None = None, **settings: Any) -> Program:
    policy = PolicyConfig(model=str(folder), engine=ENGINE, teacher=taught_by, **dict(placing))
    return rl_program(RlProgramConfig(policy=policy, evaluate=EVALUATE, rl=RlConfig(**RL, **settings)))


def test_a_run_with_adapters_critic_and_reference_saves_the_adapters_of_the_policy_and_exports_them(
    pretrained_folder: Path, run: Callable[[Program, Path], Mapping[str, Any]], tmp_path: Path
) -> None:
    """PPO with KL: what the critic learned goes on with the run, and nowhere else."""
    folder = tmp_path / "run"
    summary = run(
        program(
            pretrained_folder,
            PlacingConfig(lora=LoraConfig(rank=2), reference_mesh=MeshConfig()),
            advantages=AdvantagesConfig(rule="gae", kl_coefficient=0.1),
            loss=PolicyLoss(value_coefficient=0.5),
            reference=ReferenceConfig(follow=FollowConfig(decay=0.5), rows_per_batch=2),
            critic=CriticConfig(rows_per_batch=2),
        ),
        folder,
    )
    assert summary["status"] == "completed"
    again = saved_program(folder)
    assert again.parts is not None
    again.parts.load()
    model = again.parts.model
    where = parameters_of(with_parameters(folder / "checkpoints")[-1])
    assert where is not None
    saved = named_leaves(load_arrays(where / PARAMETERS, nnx.state(model, nnx.LoRAParam)))
    assert all("lora_" in name and "critic" not in name for name in saved)
    assert all(np.array_equal(named_leaves(nnx.state(model, nnx.Param))[name], leaf) for name, leaf in saved.items())
    main(["export", str(folder)])
    written, folded = nnx.state(load_huggingface(folder / "huggingface")), nnx.state(merged(model))
    for name, leaf in named_leaves(written).items():
        np.testing.assert_array_equal(leaf, named_leaves(folded)[name])


def test_a_policy_is_distilled_from_a_model_that_rests_in_host_memory(
    pretrained_folder: Path, run: Callable[[Program, Path], Mapping[str, Any]], tmp_path: Path
) -> None:
    """The teacher is the very model the policy began as: it says what the engine said, so the first step teaches nothing."""
    made = program(
        pretrained_folder,
        PlacingConfig(reference_mesh=MeshConfig()),
        taught_by=str(pretrained_folder),
        advantages=AdvantagesConfig(rule="distill"),
        teacher=TeacherConfig(memory="host", rows_per_batch=2),
    )
    assert run(made, tmp_path / "run")["status"] == "completed"
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    first = next(row for row in rows if row["phase"] == "rl" and row["stage"] == "trainer")
    assert first["trained_tokens"] > 0
    assert 0 < first["grad_norm"] < 1e-4
