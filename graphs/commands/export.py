"""``headrace export``: what a run learned as a Hugging Face folder, weights, tokenizer, template and stop tokens.

Other programs load such a folder; so does ``headrace chat``, and a further run as its model.
"""

import functools
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from graphs.parts import Parts
from graphs.runs.saved import saved_program
from stages.models.huggingface import write_huggingface
from stages.models.lora import merged
from stages.text.pretrained import load_tokenizer

COPIED = ("tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt", "chat_template*")
"""Files of a model's folder that are its tokenizer and template; they are copied as they are."""


@dataclass(frozen=True)
class ExportOptions:
    """Where an export goes."""

    out: Path | None = None
    """Folder to write; None takes ``huggingface`` in the run's folder."""


def prepare_export(run: Path, folder: Path | None) -> Callable[[], Path]:
    """Check that what a run learned can be written.

    Args:
        run: its folder.
        folder: where to; ``None`` for ``huggingface`` in the run's folder.

    Returns:
        What writes the folder, whole or not at all, and gives it.

    Raises:
        LookupError: no run, none over a pretrained model, or one without a checkpoint.
        FileExistsError: there are files in the folder.
    """
    folder = run / "huggingface" if folder is None else folder
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(
            f"expected a new folder, got '{folder}', which has files in it, in --out; choose another, or remove it"
        )
    parts = saved_program(run).parts
    if parts is None or parts.source is None:
        raise LookupError(
            f"expected a run over a pretrained model, got one that was trained from scratch, in '{run}'; its vocabulary is "
            "none that other programs know, so use headrace chat or headrace eval"
        )
    return functools.partial(_write, parts, parts.source.path, folder)


def loading_line(folder: Path) -> str:
    """How the folder is loaded elsewhere."""
    return f"AutoModelForCausalLM.from_pretrained('{folder}') in transformers, or headrace chat {folder}"


def _write(parts: Parts, source: Path, folder: Path) -> Path:
    parts.load()
    part = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    write_huggingface(merged(parts.model), part, stop_ids=parts.chat.stop_ids)
    _write_tokenizer(source, part)
    _write_generation(source, part, parts.chat.stop_ids)
    if folder.exists():
        folder.rmdir()
    return part.rename(folder)


def _write_tokenizer(source: Path, folder: Path) -> None:
    if source.is_dir():
        for file in sorted({file for pattern in COPIED for file in source.glob(pattern) if file.is_file()}):
            shutil.copyfile(file, folder / file.name)
    else:
        load_tokenizer(source).save_pretrained(folder)


def _write_generation(source: Path, folder: Path, stop_ids: tuple[int, ...]) -> None:
    """Settings of generation: the source's, which end answers as the run did."""
    file = source / "generation_config.json"
    settings = json.loads(file.read_text()) if file.is_file() else {}
    settings["eos_token_id"] = list(stop_ids)
    (folder / "generation_config.json").write_text(json.dumps(settings, indent=2) + "\n")
