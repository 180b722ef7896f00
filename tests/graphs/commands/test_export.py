"""From a run over a pretrained model to a folder that others load: what was learned, tokenizer, template and stop tokens."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from flax import nnx

from graphs.cli import main
from graphs.evaluate import EvaluateConfig
from graphs.pretrained import SftProgramConfig, sft_program
from graphs.pretrained_parts import PolicyConfig
from graphs.program import Program
from graphs.runs.saved import saved_program
from graphs.sft import SftConfig
from stages.agents.sampling import SamplingConfig
from stages.models.huggingface import load_huggingface
from stages.rollout.config import EngineConfig
from stages.text.pretrained import load_chat, load_tokenizer
from stages.train.config import TrainerConfig

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def taught(
    pretrained_folder: Path,
    demonstrations: Path,
    run: Callable[[Program, Path], Mapping[str, Any]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """Folder of a supervised run over the tiny pretrained model."""
    folder = tmp_path_factory.mktemp("taught")
    config = SftProgramConfig(
        policy=PolicyConfig(
            model=str(pretrained_folder), engine=EngineConfig(slots=4, prefill_rows=2, context_length=64), system="Be brief."
        ),
        evaluate=EvaluateConfig(num_tasks=2, sampling=SamplingConfig(max_tokens_per_turn=4)),
        demonstrations=demonstrations,
        sft=SftConfig(
            steps=2, examples_per_step=1, trainer=TrainerConfig(row_length=64, rows_per_microbatch=1, learning_rate=1e-2)
        ),
    )
    run(sft_program(config), folder / "run")
    return folder / "run"


@pytest.fixture(scope="module")
def exported(taught: Path) -> Path:
    main(["export", str(taught)])
    return taught / "huggingface"


def parameters(model: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(nnx.state(model, nnx.Param))]


def test_the_folder_holds_what_the_run_learned(exported: Path, taught: Path, pretrained_folder: Path) -> None:
    program = saved_program(taught)
    assert program.parts is not None
    program.parts.load()
    written, learned, before = (
        parameters(model) for model in (load_huggingface(exported), program.parts.model, load_huggingface(pretrained_folder))
    )
    for got, expected in zip(written, learned, strict=True):
        np.testing.assert_array_equal(got, expected)
    assert any((got != old).any() for got, old in zip(written, before, strict=True))


def test_tokenizer_template_and_stop_tokens_are_those_of_the_source(exported: Path, pretrained_folder: Path) -> None:
    ours, theirs = load_chat(exported), load_chat(pretrained_folder)
    assert ours.stop_ids == theirs.stop_ids
    assert [load_tokenizer(folder).encode("What is 12?") for folder in (exported, pretrained_folder)] == [
        load_tokenizer(pretrained_folder).encode("What is 12?")
    ] * 2
    assert load_tokenizer(exported).chat_template == load_tokenizer(pretrained_folder).chat_template


def test_it_is_told_where_it_is_and_a_folder_in_use_is_refused(
    taught: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["export", str(taught), "--out", str(tmp_path / "mine")])
    assert f"from_pretrained('{tmp_path / 'mine'}')" in capsys.readouterr().out
    assert not (tmp_path / "mine.part").exists()
    with pytest.raises(SystemExit) as ended:
        main(["export", str(taught), "--out", str(tmp_path / "mine")])
    assert ended.value.code == 2
    assert "which has files in it, in --out; choose another" in capsys.readouterr().err


def test_a_run_from_scratch_is_not_exported(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["export", str(finished)])
    assert ended.value.code == 2
    assert "expected a run over a pretrained model" in capsys.readouterr().err


@pytest.mark.extra
def test_torch_loads_the_folder_and_gives_our_logits(exported: Path) -> None:
    torch = pytest.importorskip("torch")
    from transformers import AutoModelForCausalLM

    ids = np.arange(8, dtype=np.int32)[None]
    theirs = AutoModelForCausalLM.from_pretrained(exported)(torch.tensor(ids)).logits.detach().numpy()
    ours = load_huggingface(exported)(ids, np.arange(8, dtype=np.int32)[None], np.ones_like(ids))
    np.testing.assert_allclose(ours, theirs, atol=1e-4)
