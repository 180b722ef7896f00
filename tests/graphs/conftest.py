"""A calculator program small enough to run in seconds: everything real, the policy tiny and untrained."""

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from graphs.calculator import CalculatorConfig, calculator
from graphs.evaluate import EvaluateConfig
from graphs.program import Program
from graphs.rl_config import RlConfig
from graphs.runs.execute import execute, prepare
from graphs.runs.folder import RunFolder
from graphs.runs.options import SavingOptions
from graphs.runs.view import View
from graphs.sft import SftConfig
from stages.agents.sampling import SamplingConfig
from stages.models.config import ModelConfig
from stages.rollout.config import EngineConfig
from stages.tools.delay import DelayConfig
from stages.train.config import TrainerConfig

SAMPLING = SamplingConfig(max_tokens_per_turn=8, max_turns=3)
TRAINER = TrainerConfig(row_length=64, rows_per_microbatch=4, learning_rate=1e-2)


def tiny_config(**changes: Any) -> CalculatorConfig:
    base = CalculatorConfig(
        num_train_tasks=64,
        delay=DelayConfig(scale_s=0.001, max_s=0.01),
        model=ModelConfig(
            vocab_size=CalculatorConfig().model.vocab_size, width=16, num_layers=1, num_heads=2, num_kv_heads=1, head_size=8,
            mlp_width=32, context_length=64,
        ),
        engine=EngineConfig(slots=16, context_length=64, prefill_rows=8, prefill_chunk=16),
        warm_start=SftConfig(steps=30, examples_per_step=16, trainer=TRAINER),
        evaluate=EvaluateConfig(num_tasks=16, max_concurrency=16, sampling=SAMPLING.model_copy(update={"seed": 1})),
        rl=RlConfig(
            steps=3, groups_per_step=4, group_size=4, max_concurrency=16, trainer=TRAINER,
            sampling=SAMPLING,
        ),
    )  # fmt: skip
    return base.model_copy(update=changes)


def run_program(program: Program, folder: Path, **options: Any) -> Mapping[str, Any]:
    run_folder = RunFolder(folder)
    plans, view = prepare(program, run_folder), View(Console(quiet=True))
    return asyncio.run(execute(program, plans, run_folder, view, options=SavingOptions(**options)))


@pytest.fixture(scope="session")
def config() -> Callable[..., CalculatorConfig]:
    return tiny_config


@pytest.fixture(scope="session")
def run() -> Callable[..., Mapping[str, Any]]:
    return run_program


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a calculator run that has ended."""
    folder = tmp_path_factory.mktemp("runs") / "finished"
    run_program(calculator(tiny_config()), folder)
    return folder


@pytest.fixture(scope="session")
def penalised(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of one whose rewards tell long episodes from short ones, so that an untrained policy has something to learn."""
    folder = tmp_path_factory.mktemp("runs") / "penalised"
    run_program(calculator(penalising()), folder)
    return folder


def penalising() -> CalculatorConfig:
    config = tiny_config()
    return config.model_copy(update={"rl": config.rl.model_copy(update={"overlong_buffer": config.rl.max_sampled})})


@pytest.fixture(scope="session")
def penalised_config() -> CalculatorConfig:
    return penalising()


@pytest.fixture(scope="session")
def summary(finished: Path) -> Mapping[str, Any]:
    return json.loads((finished / "summary.json").read_text())


@pytest.fixture(scope="session")
def demonstrations(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with one conversation to learn from."""
    rows = [{"role": "user", "content": "one and two?"}, {"role": "assistant", "content": "three"}]
    file = tmp_path_factory.mktemp("demonstrations") / "demonstrations.jsonl"
    file.write_text(json.dumps({"id": "a", "messages": rows}) + "\n")
    return file
