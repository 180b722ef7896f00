"""A calculator program small enough to run in seconds: everything real, the policy tiny and untrained."""

import asyncio
import importlib.util
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from graphs.bench.kept import Kept
from graphs.bench.measured import measured
from graphs.calculator import CalculatorConfig, calculator
from graphs.evaluate import EvaluateConfig
from graphs.heldout_config import HeldoutConfig
from graphs.program import Program
from graphs.rl_config import RlConfig
from graphs.runs.execute import execute, prepare
from graphs.runs.folder import RunFolder
from graphs.runs.json_rows import decode
from graphs.runs.metrics import find, kind_of
from graphs.runs.options import SavingOptions
from graphs.runs.view import View
from graphs.sft import SftConfig
from stages.agents.sampling import SamplingConfig
from stages.models.config import ModelConfig
from stages.rollout.config import EngineConfig
from stages.tools.delay import DelayConfig
from stages.train.config import TrainerConfig
from stages.train.gate import GateConfig

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
    """Run one, of whatever kind, and see that what it reports is in the list of metrics."""
    run_folder = RunFolder(folder)
    plans, view = prepare(program, run_folder), View(Console(quiet=True))
    summary = asyncio.run(execute(program, plans, run_folder, view, options=SavingOptions(**options)))
    assert unlisted(folder) == [], "in graphs/runs/metrics.py"
    return summary


def unlisted(folder: Path) -> list[str]:
    """What a run reported and METRICS does not know."""
    found = set()
    for line in (folder / "metrics.jsonl").read_bytes().splitlines():
        row = decode(line)
        kind = kind_of(row)
        if kind is not None:
            found |= {f"{kind}: {name}" for name in row if find(name, ("every", kind)) is None}
    names = flat_numbers(json.loads((folder / "summary.json").read_text()))
    return sorted(found | {f"summary: {name}" for name in names if find(name, ("summary",)) is None})


def flat_numbers(value: Any, above: str = "") -> list[str]:
    """Names of all numbers of a summary, those above them in front; of phases, which are a list, by their names."""
    if isinstance(value, list):
        value = {part["name"]: part for part in value if isinstance(part, dict) and "name" in part}
    if isinstance(value, dict):
        return [name for key, part in value.items() for name in flat_numbers(part, f"{above}.{key}" if above else key)]
    return [above] if isinstance(value, int | float) else []


@pytest.fixture(scope="session")
def numbers_in() -> Callable[[Any], list[str]]:
    return flat_numbers


@pytest.fixture(scope="session")
def config() -> Callable[..., CalculatorConfig]:
    return tiny_config


@pytest.fixture(scope="session")
def run() -> Callable[..., Mapping[str, Any]]:
    return run_program


@pytest.fixture(scope="session")
def experiments() -> Mapping[str, Any]:
    """Those of ``bench_experiments.py``, by name."""
    spec = importlib.util.spec_from_file_location("bench_experiments", Path(__file__).with_name("bench_experiments.py"))
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["bench_experiments"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.EXPERIMENTS


@pytest.fixture(scope="session")
def words(experiments: Mapping[str, Any]) -> Kept:
    """What a tiny real experiment found."""
    return measured(experiments["words"], experiments["words"].config(), "headrace bench words", lambda done, total, what: None)


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
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a run of four steps that is evaluated at versions 0, 2 and 4, 12 tasks twice each, by slow calculators."""
    folder = tmp_path_factory.mktemp("heldout") / "run"
    heldout = HeldoutConfig(every=2, num_tasks=12, attempts=2, pass_at=(1, 2), max_concurrency=4)
    base = tiny_config()
    rl = base.rl.model_copy(update={"heldout": heldout, "gate": GateConfig(action="keep_best"), "steps": 4})
    slow = DelayConfig(scale_s=0.03, max_s=0.1)  # so that an evaluation takes longer than a step
    run_program(calculator(base.model_copy(update={"rl": rl, "delay": slow})), folder)
    return folder


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
