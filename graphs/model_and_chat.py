"""A pretrained model and the chat format that lies beside it, described together. No weights are read."""

from pathlib import Path
from typing import Literal

from stages.models.pretrained import describe_model
from stages.models.transformer import Transformer
from stages.text.calls import FormatName
from stages.text.pretrained import load_chat
from stages.text.template import TemplateChat


def describe_both(
    path: Path, *, calls: FormatName | None = None, history: Literal["append", "fork"] = "append", weights: bool = True
) -> tuple[Transformer, TemplateChat]:
    """Describe the model, then read its tokenizer, which would tell faults of the model's configuration as its own.

    Args:
        path: a Hugging Face folder, or a ``.gguf`` file.
        calls: see ``TemplateChat``.
        history: see ``TemplateChat``.
        weights: see ``describe_model``.

    Returns:
        The model, its parameters shapes only, and the chat format.

    Raises:
        ValueError: the tokenizer has tokens that the model lacks; or as ``describe_model`` and ``load_chat``.
        FileNotFoundError, ImportError: as ``describe_model`` and ``load_chat``.
    """
    model, chat = describe_model(path, weights=weights), load_chat(path, calls=calls, history=history)
    if chat.vocab_size > model.config.vocab_size:
        raise ValueError(
            f"expected a model with a token for each of the {chat.vocab_size} of its tokenizer; got one of "
            f"{model.config.vocab_size}; in {path}; put the tokenizer there that the model was trained with"
        )
    return model, chat
