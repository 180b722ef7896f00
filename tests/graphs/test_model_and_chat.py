"""A model and the chat format beside it: what does not fit is told as what it is, by all that take a pretrained model."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from flax import nnx

from graphs.commands.chat import ChatConfig, find_speaker
from graphs.model_and_chat import describe_both
from graphs.own_parts import own_parts
from graphs.pretrained import RlProgramConfig
from graphs.pretrained_parts import PolicyConfig, make_parts
from stages.envs.task_env import TaskEnv
from stages.models.huggingface import write_huggingface
from stages.models.transformer import Transformer

TAKERS: dict[str, Callable[[Path], object]] = {
    "both": describe_both,
    "chat": lambda path: find_speaker(str(path), ChatConfig()),
    "run": lambda path: make_parts(RlProgramConfig(policy=PolicyConfig(model=str(path)))),
    "own": lambda path: own_parts([], lambda task: TaskEnv(), model=str(path)),
}


@pytest.fixture
def folder(pretrained_folder: Path, tmp_path: Path) -> Path:
    return shutil.copytree(pretrained_folder, tmp_path / "model")


@pytest.mark.parametrize("taker", TAKERS)
def test_a_tokenizer_larger_than_its_model_is_refused(folder: Path, taker: str) -> None:
    whole, _ = describe_both(folder)
    smaller = Transformer(whole.config.model_copy(update={"vocab_size": 96}), nnx.Rngs(0))
    for written in ("config.json", "model.safetensors"):
        (folder / written).unlink()
    write_huggingface(smaller, folder)
    with pytest.raises(ValueError, match=rf"token for each of the \d+ of its tokenizer; got one of 96; in {folder}; put the"):
        TAKERS[taker](folder)


@pytest.mark.parametrize("taker", TAKERS)
def test_a_fault_of_the_configuration_is_not_blamed_on_the_tokenizer(folder: Path, taker: str) -> None:
    (folder / "config.json").write_text("{")
    with pytest.raises(ValueError, match=r"expected") as told:
        TAKERS[taker](folder)
    assert "config.json" in str(told.value)
    assert "tokenizer" not in str(told.value)
