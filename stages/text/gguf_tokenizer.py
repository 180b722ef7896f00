"""A fast tokenizer with its chat template out of the metadata of a GGUF file, without torch.

Not a reader of weights (``stages/models`` has one). The tokenizers of the llama family: byte-level BPE with merges
(``tokenizer.ggml.model`` "gpt2": Llama 3, SmolLM, Mistral Nemo) and SentencePiece BPE with scores ("llama": Llama 2, Mistral,
TinyLlama). transformers reads GGUF itself only where torch is installed. Its converter runs without, but gives other ids: it
drops the rule that a whole word of the vocabulary needs no merges (Llama 3), the blank before a text that starts with one
(Llama 2), and single digits (SmolLM).
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages.gguf_file import open_gguf

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast


class _Kind(IntEnum):
    """GGUF's types of tokens, those that matter here."""

    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    BYTE = 6


@dataclass(frozen=True)
class _Words:
    """How a byte-level vocabulary wants text cut into words.

    Attributes:
        patterns: what stands alone, one pattern after the other; what lies between two finds is a word as well.
        whole: a word that is a token is not merged, but taken as it is.
        begins: a begin token is added where the file does not say.
    """

    patterns: tuple[str, ...]
    whole: bool = False
    begins: bool = False


_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_CASED = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
_CAPITALS, _SMALL = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_LLAMA3 = _Words((rf"{_CASED}|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_TAIL}",), whole=True, begins=True)
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_CAPITALS}*{_SMALL}+|[^\r\n\p{{L}}\p{{N}}]?{_CAPITALS}+{_SMALL}*"
    rf"|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_TAIL}"
)
_WORDS = {
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "tekken": _Words((_TEKKEN,), whole=True, begins=True),
    "qwen2": _Words((rf"{_CASED}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_TAIL}",)),
    "smollm": _Words((r"\p{N}", _GPT2)),
    "gpt-2": _Words((_GPT2,)),
    "default": _Words((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")),
}
"""By ``tokenizer.ggml.pre``. Source: llama.cpp, ``src/llama-vocab.cpp``, ``llm_tokenizer_bpe`` and ``llama_vocab::impl::load``.

We differ where it simplifies: these are the patterns of the models' own ``tokenizer.json``, which stand there as comments."""

_SPECIALS = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
_LLAMA_IDS = {"ggml.bos_token_id": 1, "ggml.eos_token_id": 2, "ggml.unknown_token_id": 0}
"""What SentencePiece files need not say."""
_BLANK = "\u2581"


def load_gguf_tokenizer(path: str | Path) -> "PreTrainedTokenizerFast":
    """The tokenizer of a llama-family file: the ids are those of llama.cpp with special tokens parsed.

    Begin and end tokens are added to an encoded text as the file says, and where it does not, as llama.cpp does.

    Args:
        path: the ``.gguf`` file.

    Raises:
        ImportError: the ``gguf`` package is not installed.
        ValueError: another kind of tokenizer, no chat template, or metadata that does not fit together; all faults are named.

    Source: llama.cpp, ``src/llama-vocab.cpp``.
    """
    # Without this, importing transformers prints a notice about torch, which nothing here needs.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    from transformers import PreTrainedTokenizerFast

    fields = open_gguf(Path(path)).fields
    found = {name[len("tokenizer.") :]: field.contents() for name, field in fields.items() if name.startswith("tokenizer.")}
    if found.get("ggml.model") == "llama":
        found = _LLAMA_IDS | found
    faults = list(_faults(found))
    if faults:
        raise ValueError(
            f"expected a tokenizer of the llama family (llama, or gpt2 with {', '.join(_WORDS)}) and a chat template; "
            f"got {'; '.join(faults)}; in {path}; use an instruct file made by a current llama.cpp, or the model's Hugging "
            "Face folder"
        )
    tokens = found["ggml.tokens"]
    ids = {name: found.get(f"ggml.{key}_token_id") for name, key in _SPECIALS.items()}
    named = {name: tokens[index] for name, index in ids.items() if index is not None}
    return PreTrainedTokenizerFast(tokenizer_object=_tokenizer(found), chat_template=found["chat_template"], **named)


def _faults(found: Mapping[str, Any]) -> Iterator[str]:
    model, tokens = found.get("ggml.model"), found.get("ggml.tokens", [])
    if model not in ("llama", "gpt2"):
        yield f"tokenizer {model}"
    if model == "gpt2" and found.get("ggml.pre") not in _WORDS:
        yield f"tokenizer gpt2 with pre-tokenizer {found.get('ggml.pre')}"
    if "chat_template" not in found:
        yield "no chat template"
    if not tokens:
        yield "no tokens"
    elif len(set(tokens)) < len(tokens):
        yield f"{len(tokens) - len(set(tokens))} tokens that occur twice"
    for key in ("ggml.token_type", *(("ggml.scores",) if model == "llama" else ())):
        if len(found.get(key, [])) != len(tokens):
            yield f"{len(found.get(key, []))} values of {key} for {len(tokens)} tokens"
    if model == "gpt2":
        yield from _merge_faults(found.get("ggml.merges", []), set(tokens))
    for name, key in _SPECIALS.items():
        index = found.get(f"ggml.{key}_token_id")
        if index is not None and not 0 <= index < len(tokens):
            yield f"{name} {index} of {len(tokens)} tokens"
        if index is None and _adds(found, key):
            yield f"no {name}, though one is to be added"


def _merge_faults(merges: list[str], vocabulary: set[str]) -> Iterator[str]:
    if not merges:
        yield "no merges"
    bad = [pair for pair in merges if pair.count(" ") != 1 or not {*pair.split(" "), pair.replace(" ", "")} <= vocabulary]
    if bad:
        yield f"{len(bad)} merges of what is no token, such as {bad[0]!r}"


def _adds(found: Mapping[str, Any], key: str) -> bool:
    """Whether a token, ``bos`` or ``eos``, is added around an encoded text."""
    words = _WORDS.get(found.get("ggml.pre", ""))
    begins = key == "bos" and (found.get("ggml.model") == "llama" or (words is not None and words.begins))
    return bool(found.get(f"ggml.add_{key}_token", begins))


def _tokenizer(found: Mapping[str, Any]) -> "Tokenizer":
    from tokenizers import AddedToken, processors

    tokens, kinds = found["ggml.tokens"], found["ggml.token_type"]
    tokenizer = _sentence_pieces(found) if found["ggml.model"] == "llama" else _byte_level(found)
    typed = list(zip(tokens, kinds, strict=True))
    whole = [token for token, kind in typed if kind in (_Kind.CONTROL, _Kind.UNKNOWN)]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in whole])
    own = [token for token, kind in typed if kind == _Kind.USER_DEFINED]
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in own])
    around = {key: tokens[found[f"ggml.{key}_token_id"]] for key in ("bos", "eos") if _adds(found, key)}
    if around:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=[*([around["bos"]] if "bos" in around else []), "$A", *([around["eos"]] if "eos" in around else [])],
            special_tokens=[(around[key], found[f"ggml.{key}_token_id"]) for key in around],
        )
    return tokenizer


def _byte_level(found: Mapping[str, Any]) -> "Tokenizer":
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    words = _WORDS[found["ggml.pre"]]
    vocabulary = {token: index for index, token in enumerate(found["ggml.tokens"])}
    merges = [tuple(pair.split(" ")) for pair in found["ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=words.whole))
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in words.patterns]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentence_pieces(found: Mapping[str, Any]) -> "Tokenizer":
    """Each stretch of text between special tokens is led by a blank, and no word ends at one: blanks are letters."""
    from tokenizers import Tokenizer, decoders, models, normalizers

    tokens = found["ggml.tokens"]
    tokenizer = Tokenizer(
        models.BPE(
            vocab={token: index for index, token in enumerate(tokens)},
            merges=list(_scored_merges(tokens, found["ggml.token_type"], found["ggml.scores"])),
            unk_token=tokens[found["ggml.unknown_token_id"]],
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    led = bool(found.get("ggml.add_space_prefix", True))
    blanks = normalizers.Replace(" ", _BLANK)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(_BLANK), blanks]) if led else blanks
    steps = [decoders.Replace(_BLANK, " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*steps, *([decoders.Strip(" ", 1, 0)] if led else [])])
    return tokenizer


def _scored_merges(tokens: list[str], kinds: list[int], scores: list[float]) -> Iterator[tuple[str, str]]:
    """Every pair that makes a piece, the best piece first; of equal ones, whose order no file tells, the earlier.

    Control and byte tokens are never put together from letters, or a text could spell one out.

    Source: SentencePiece, ``bpe_model.cc``. We differ where two pairs that share a token make the same piece: it merges the
    left one, a list of merges those of one kind first. Here that is the longer left part, as in transformers' converter.
    """
    apart = (_Kind.UNKNOWN, _Kind.CONTROL, _Kind.USER_DEFINED, _Kind.BYTE)
    typed = zip(tokens, kinds, scores, strict=True)
    pieces = {token: score for token, kind, score in typed if kind not in apart}
    for piece in sorted(pieces, key=lambda piece: -pieces[piece]):
        for cut in range(len(piece) - 1, 0, -1):
            if piece[:cut] in pieces and piece[cut:] in pieces:
                yield piece[:cut], piece[cut:]
