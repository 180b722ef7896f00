"""A pretrained decoder from where it lies on disk: a Hugging Face folder or a GGUF file.

Only the choice between the two; ``huggingface.py`` and ``gguf.py`` read them. The tokenizer of the same place is for
``stages/text/pretrained.py``, a name on the Hub for whoever starts a run.
"""

from pathlib import Path

from stages.models.gguf import describe_gguf, fill_from_gguf
from stages.models.huggingface import describe_huggingface, fill_from_huggingface, tensor_files
from stages.models.transformer import Transformer


def describe_model(path: Path, *, weights: bool = True) -> Transformer:
    """The decoder that lies at a path, without its weights: shapes only, for checks before anything is loaded.

    Args:
        path: a folder with ``config.json``, or a ``.gguf`` file.
        weights: whether a folder must have them; False describes it without, for checks far from where it will run.

    Raises:
        FileNotFoundError: a file is missing.
        ImportError: a GGUF file, and the ``gguf`` package is not installed.
        ValueError: an architecture, a tensor type or tensors that are not read; all of them are named.
    """
    return describe_huggingface(path, weights=weights) if path.is_dir() else describe_gguf(path)


def check_weights(path: Path) -> None:
    """Refuse a model that was described without its weights.

    Raises:
        FileNotFoundError: they are not there, or not all of them.
    """
    if path.is_dir():
        tensor_files(path)


def fill_model(model: Transformer, path: Path) -> None:
    """Put the weights that lie at a path into the decoder that ``describe_model`` gave for it."""
    if path.is_dir():
        fill_from_huggingface(model, path)
    else:
        fill_from_gguf(model, path)
