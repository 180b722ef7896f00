"""A fast tokenizer with its chat template out of the metadata of a GGUF file, without torch.

Not a reader of weights (``stages/models`` has one). transformers can read GGUF itself only where torch is installed.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages.gguf_file import open_gguf

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

# GGUF's token type for control tokens such as <|im_end|>.
_CONTROL = 3


def load_gguf_tokenizer(path: str | Path) -> "PreTrainedTokenizerFast":
    """The tokenizer of a byte-level BPE model of the SmolLM family.

    Args:
        path: the ``.gguf`` file.

    Raises:
        ImportError: the ``gguf`` package is not installed.
        ValueError: the file has another kind of tokenizer, or no chat template.

    Source: llama.cpp, ``src/llama-vocab.cpp``, pre-tokenizer ``smollm``: digits singly, then the GPT-2 byte-level split.
    """
    # Without this, importing transformers prints a notice about torch, which nothing here needs.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    from transformers import PreTrainedTokenizerFast

    fields = open_gguf(Path(path)).fields
    found = {key: fields[f"tokenizer.{key}"].contents() for key in _KEYS if f"tokenizer.{key}" in fields}
    kind = (found.get("ggml.model"), found.get("ggml.pre"))
    if kind != ("gpt2", "smollm") or "chat_template" not in found:
        raise ValueError(
            f"expected tokenizer gpt2/smollm with a chat template; got {kind[0]}/{kind[1]}, template "
            f"{'present' if 'chat_template' in found else 'absent'}, in {path}; use a SmolLM2 instruct file"
        )
    tokens = found["ggml.tokens"]
    specials = {name: tokens[found[key]] for name, key in _SPECIALS.items() if key in found}
    return PreTrainedTokenizerFast(tokenizer_object=_tokenizer(found), chat_template=found["chat_template"], **specials)


_KEYS = (
    "ggml.model",
    "ggml.pre",
    "ggml.tokens",
    "ggml.merges",
    "ggml.token_type",
    "ggml.bos_token_id",
    "ggml.eos_token_id",
    "ggml.padding_token_id",
    "chat_template",
)
_SPECIALS = {
    "bos_token": "ggml.bos_token_id",
    "eos_token": "ggml.eos_token_id",
    "pad_token": "ggml.padding_token_id",
}


def _tokenizer(found: dict[str, Any]) -> Any:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens = found["ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in found["ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={token: index for index, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = [token for token, kind in zip(tokens, found["ggml.token_type"], strict=True) if kind == _CONTROL]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    return tokenizer
