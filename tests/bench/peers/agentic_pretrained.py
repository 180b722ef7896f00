"""SmolLM2-135M for the agentic comparison: its weights as they are, positions turned with the base that tunix's Llama has."""

import json
from pathlib import Path

from agentic_settings import MARKS

from stages.text.gguf_tokenizer import load_gguf_tokenizer

ROTARY_BASE = 1_000_000.0
"""Whatever tunix's configuration says. Another base makes another policy of the same weights, for all systems the same one."""
END = "\u0120the"
"""The word that ends a turn, one token with its blank. The model's own end token would seldom come after letters without a
template, and no episode would be scored."""


def write_pretrained(gguf: Path, source: Path, folder: Path) -> None:
    """The model's folder, and ``tokens.json`` beside it.

    Args:
        gguf: file with the vocabulary.
        source: folder with the weights, as transformers reads them.
        folder: to be made.
    """
    folder.mkdir(parents=True)
    for file in source.glob("*.safetensors*"):
        (folder / file.name).symlink_to(file.resolve())
    config = json.loads((source / "config.json").read_text())
    rotary = {**config.get("rope_parameters", {}), "rope_type": "default", "rope_theta": ROTARY_BASE}
    head = config["hidden_size"] // config["num_attention_heads"]
    changed = {**config, "rope_parameters": rotary, "rope_theta": ROTARY_BASE, "head_dim": config.get("head_dim") or head}
    (folder / "config.json").write_text(json.dumps(changed))
    tokenizer = load_gguf_tokenizer(str(gguf))
    end = tokenizer.convert_tokens_to_ids(END)
    tokens = [tokenizer.decode([number]) for number in range(config["vocab_size"])]
    for number, mark in {**MARKS, end: "<|end|>"}.items():
        tokens[number] = mark
    (folder.parent / "tokens.json").write_text(json.dumps(tokens))
