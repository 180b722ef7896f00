"""What is wrong with what an environment answered, expected and got in one line each. Pure.

Read wherever an environment is not ours to trust: by the guards of an episode, and by ``check_env``.
"""

import math
from collections.abc import Sequence
from typing import Any

from stages.envs.environment import Opening, Reply
from stages.records import Message, Status

_ENDS = (None, Status.FINISHED, Status.TRUNCATED_TURNS)


def opening_problem(opening: Any) -> str | None:
    """What is wrong with the beginning of a conversation; ``None`` for nothing."""
    if not isinstance(opening, Opening):
        return f"expected an Opening, got {type(opening).__name__}"
    if not opening.messages:
        return "expected at least one message, got none"
    if opening.on_invalid not in (None, "answer", "end"):
        return f"expected on_invalid to be answer, end or None, got {opening.on_invalid!r}"
    names = [tool.name for tool in opening.tools]
    if len(set(names)) < len(names):
        return f"expected tools with names that differ, got {names}"
    return _messages_problem(opening.messages, ("system", "user", "assistant"))


def reply_problem(message: Message, reply: Any) -> str | None:
    """What is wrong with the answer to a turn; ``None`` for nothing.

    Args:
        message: the turn.
        reply: what the environment answered. Where the episode goes on, it answers every call once, under its own id.
    """
    if not isinstance(reply, Reply):
        return f"expected a Reply, got {type(reply).__name__}"
    if reply.end not in _ENDS:
        return f"expected an end of finished, truncated_turns or None, got {reply.end!r}"
    problem = _messages_problem(reply.messages, ("tool", "user"))
    if problem is not None:
        return problem
    wanted = [call.id for call in message.calls]
    got = [str(answer.call_id) for answer in reply.messages if answer.role == "tool"]
    if reply.end is None and sorted(wanted) != sorted(got):
        return f"expected one tool message for each of the calls {wanted}, got answers to {got}"
    if not set(got) <= set(wanted) or len(set(got)) < len(got):
        return f"expected at most one tool message for each of the calls {wanted}, got answers to {got}"
    return None


def score_problem(parts: Any) -> str | None:
    """What is wrong with a score; ``None`` for nothing."""
    if parts is None:
        return None
    if not isinstance(parts, dict):
        return f"expected rewards by name of their part, got {type(parts).__name__}"
    for name, value in parts.items():
        if not isinstance(name, str):
            return f"expected names of parts, got {name!r}"
        if isinstance(value, str) or not hasattr(value, "__float__") or not math.isfinite(value):
            return f"expected a finite number in {name}, got {str(value)[:40]}"
    return None


def _messages_problem(messages: Sequence[Any], roles: tuple[str, ...]) -> str | None:
    for message in messages:
        if not isinstance(message, Message):
            return f"expected messages, got {type(message).__name__}"
        if message.role not in roles:
            return f"expected messages of {', '.join(roles)}, got one of {message.role}"
        if not isinstance(message.content, str):
            return f"expected messages with text, got {type(message.content).__name__}"
    return None
