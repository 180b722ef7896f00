"""Rewards that compare the final answer with the reference. Pure functions of one episode; the stage is in ``stage.py``.

Only the policy's own text counts, and of it only the last message: a tool that prints the right number earns nothing, and
neither does a number the policy mentioned on the way.
"""

import math
import re

from stages.records import Episode, Task

_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d[\d,]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")


def final_text(episode: Episode) -> str | None:
    """Text of the policy's final answer.

    Returns:
        The stripped content of the policy's last message, where the episode finished and it calls no tool; ``None`` otherwise,
        which includes every truncated episode.
    """
    if not episode.status.rule.answers:
        return None
    said = [message for message in episode.messages if message.role == "assistant"]
    return said[-1].content.strip() if said and not said[-1].calls else None


def exact_answer(episode: Episode) -> float:
    """1.0 where the final answer equals ``task.answer``, blanks at both ends aside; 0.0 otherwise.

    Raises:
        ValueError: the task has no reference answer.
    """
    expected = _reference(episode).strip()
    return float(final_text(episode) == expected)


def last_number(episode: Episode) -> float:
    """1.0 where the last number of the final answer equals the number ``task.answer``; 0.0 otherwise.

    Numbers are compared as numbers: ``1,200.0`` equals ``1200``. The tolerance is one part in a billion, which is what is
    left of two ways to write one float, and no more.

    Raises:
        ValueError: the task has no reference answer, or it is not a number.
    """
    reference = _reference(episode)
    expected = _number(reference.strip())
    if expected is None:
        raise ValueError(
            f"task {episode.task.id!r}: expected a number as reference answer, got {reference!r} (reward last_number); "
            "use exact_answer for answers that are not numbers"
        )
    found = _NUMBER.findall(final_text(episode) or "")
    got = _number(found[-1]) if found else None
    return float(got is not None and math.isclose(got, expected, rel_tol=1e-9, abs_tol=0.0))


def needs_answer(task: Task) -> str | None:
    """What keeps a task from being scored by ``exact_answer``, in one line; ``None`` for nothing."""
    return None if task.answer is not None else "answer: expected a reference answer, got none"


def needs_number(task: Task) -> str | None:
    """What keeps a task from being scored by ``last_number``, in one line; ``None`` for nothing."""
    if task.answer is None or _number(task.answer.strip()) is None:
        return f"answer: expected a number, got {task.answer!r}"
    return None


def _reference(episode: Episode) -> str:
    if episode.task.answer is None:
        raise ValueError(
            f"task {episode.task.id!r}: expected a reference answer, got none (rewards that compare answers); "
            "give the tasks an answer, or score them with another reward"
        )
    return episode.task.answer


def _number(text: str) -> float | None:
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) else None
