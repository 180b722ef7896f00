"""A teacher: another model over the policy's vocabulary, described before it is loaded. ``scoring.py`` asks it."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from graphs.model_source import find_model
from stages.models.pretrained import describe_model, fill_model
from stages.models.transformer import Transformer
from stages.text.pretrained import load_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


@dataclass(frozen=True)
class Teacher:
    """A model that scores what the policy sampled, of whatever size and architecture.

    Attributes:
        model: loaded, or described.
        fetch: fills in the parameters of one that is described, when the run opens; ``None`` where somebody else does.
    """

    model: Transformer
    fetch: Callable[[], object] | None = None


def pretrained_teacher(name: str, revision: str | None, policy: Path, setting: str = "teacher.model") -> Teacher:
    """A pretrained teacher, described; its weights are read when the run opens.

    Args:
        name: a Hugging Face folder, a .gguf file, or OWNER/NAME on the Hub.
        revision: commit, branch or tag on the Hub; ``None`` for its main branch.
        policy: where the policy comes from.
        setting: name of the setting, for errors.

    Raises:
        ValueError: there is no such model, or it reads ids otherwise than the policy.
    """
    path = find_model(name, revision, setting).path
    check_vocabulary(load_tokenizer(policy), load_tokenizer(path), setting)
    model = describe_model(path)
    return Teacher(model, functools.partial(fill_model, model, path))


def check_vocabulary(
    policy: "PreTrainedTokenizerFast", teacher: "PreTrainedTokenizerFast", setting: str = "teacher.model"
) -> None:
    """Refuse a teacher that has another token for an id of the policy's. Tokens that only the teacher has do not matter.

    Raises:
        ValueError: naming the first ids that differ.
    """
    ours = {number: token for token, number in policy.get_vocab().items()}
    theirs = {number: token for token, number in teacher.get_vocab().items()}
    apart = [number for number in sorted(ours) if theirs.get(number) != ours[number]]
    if apart:
        shown = ", ".join(f"{number}: {ours[number]!r} is {theirs.get(number)!r} there" for number in apart[:3])
        raise ValueError(
            f"expected a teacher with the policy's tokens, got one where {len(apart)} of {len(ours)} ids are others ({shown}), "
            f"in {setting}; choose one of the same family, whose tokenizer is the same"
        )


def checked(teacher: Teacher | None, vocab_size: int) -> Teacher:
    """Refuse a teacher that is none, or lacks tokens.

    Args:
        teacher: of the parts.
        vocab_size: ids that the policy's chat format has.

    Raises:
        ValueError: see above.
    """
    if teacher is None:
        raise ValueError(
            "expected a teacher, got none, in the parts of the program; name one, with --policy.teacher where the policy is "
            "pretrained, or ask none"
        )
    theirs = teacher.model.config.vocab_size
    if theirs < vocab_size:
        raise ValueError(
            f"expected a teacher with each of the {vocab_size} tokens of the policy's chat format, got one of {theirs}, in "
            "teacher; choose one of the same family, whose tokenizer is the same"
        )
    return teacher
