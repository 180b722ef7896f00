"""The tokenizer and the chat format of a pretrained model, from where it lies on disk. No weights, no network, no torch."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from stages.text.calls import FormatName
from stages.text.gguf_tokenizer import load_gguf_tokenizer
from stages.text.template import TemplateChat

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json")
"""A Hugging Face folder holds its vocabulary in at least one of these."""
TEMPLATE_FILES = ("chat_template.jinja", "tokenizer_config.json")
"""And its chat template in one of these."""


def load_tokenizer(path: Path) -> "PreTrainedTokenizerFast":
    """The fast tokenizer of a model, with its chat template.

    Args:
        path: a Hugging Face folder, or a ``.gguf`` file.

    Raises:
        FileNotFoundError: the folder has no tokenizer files.
        ImportError: a GGUF file, and the ``gguf`` package is not installed.
        ValueError: the tokenizer cannot be read, has no fast form, or there is no chat template.
    """
    return _folder_tokenizer(path) if path.is_dir() else load_gguf_tokenizer(path)


def load_chat(path: Path, *, calls: FormatName | None = None, history: Literal["append", "fork"] = "append") -> TemplateChat:
    """The chat format of a model. Turns end as its template says, and by what else its ``generation_config.json`` names.

    Args:
        path: see ``load_tokenizer``.
        calls: see ``TemplateChat``.
        history: see ``TemplateChat``.

    Raises:
        FileNotFoundError, ImportError, ValueError: as ``load_tokenizer``; also where turns cannot be told apart.
    """
    return TemplateChat(load_tokenizer(path), also_stop=stop_ids(path), calls=calls, history=history)


def stop_ids(path: Path) -> tuple[int, ...]:
    """Ids that end an answer by a folder's ``generation_config.json``; none where there is no such file."""
    file = path / "generation_config.json"
    if not file.is_file():
        return ()
    try:
        found = json.loads(file.read_text()).get("eos_token_id")
    except ValueError as error:
        raise ValueError(f"expected JSON, got {error}, in {file}; fetch the file again") from error
    return tuple(found) if isinstance(found, list) else () if found is None else (int(found),)


def _folder_tokenizer(folder: Path) -> "PreTrainedTokenizerFast":
    if not any((folder / name).is_file() for name in TOKENIZER_FILES):
        raise FileNotFoundError(
            f"expected a tokenizer ({', '.join(TOKENIZER_FILES[:-1])} or {TOKENIZER_FILES[-1]}), got none, in {folder}; "
            "copy the tokenizer files of the model into its folder"
        )
    tokenizer = _read(folder)
    if not tokenizer.is_fast:
        raise ValueError(
            f"expected a fast tokenizer, got {type(tokenizer).__name__}, in {folder}; save it with tokenizer.json beside it"
        )
    if not tokenizer.chat_template:
        raise ValueError(
            f"expected a chat template ({' or '.join(TEMPLATE_FILES)}), got none, in {folder}; "
            "use the model's instruct version, or put its template there as chat_template.jinja"
        )
    return tokenizer


def _read(folder: Path) -> Any:
    # Without this, importing transformers prints a notice about torch, which nothing here needs.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True)
    # transformers and tokenizers raise whatever comes up, bare Exception among it.
    except Exception as error:
        raise ValueError(
            f"expected a tokenizer that transformers can read, got {type(error).__name__}: {str(error)[:300]}, in {folder}; "
            "fetch the tokenizer files again"
        ) from error
