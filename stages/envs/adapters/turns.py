"""A turn that is an action in words: finding the action, and what is said when there is none.

Shared by the adapters whose environments take one action a turn; it knows none of them.
"""

import re
from collections.abc import Mapping

from stages.envs.environment import Reply
from stages.records import Message, Status
from stages.tools.tool import bounded


def named_action(text: str, actions: Mapping[str, int]) -> int | None:
    """The action whose name stands last in a text as whole words, so that a model may think before it acts.

    Args:
        text: a turn, in any case.
        actions: number by name, in lower case.

    Returns:
        Its number; ``None`` where no name stands in the text.
    """
    names = "|".join(re.escape(name) for name in sorted(actions, key=len, reverse=True))
    found = re.findall(rf"(?<![\w.-])({names})(?!\w)", text.lower())
    return actions[found[-1]] if found else None


def uncalled(message: Message) -> tuple[Message, ...]:
    """An answer to each call of a turn, where there is no tool to call."""
    text = "error: expected an action as text, got a call; there are no tools here"
    return tuple(Message("tool", text, call_id=call.id) for call in message.calls)


class InvalidActions:
    """Counts turns in a row that were no action, and ends an episode that has too many.

    Args:
        limit: the episode ends with so many in a row.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._count = 0

    def accept(self) -> None:
        """The turn was an action."""
        self._count = 0

    def refuse(self, message: Message, expected: str, max_chars: int) -> Reply:
        """Answer a turn that was none.

        Args:
            message: the turn.
            expected: what would have been one.
            max_chars: most characters of the answer.
        """
        self._count += 1
        got = "a call" if message.calls else repr(message.content[-40:])
        problem = Message("user", bounded(f"error: expected {expected}, got {got}", max_chars))
        replies = (*uncalled(message), problem)
        if self._count < self._limit:
            return Reply(replies)
        return Reply(replies, Status.TRUNCATED_TURNS, f"{self._count} invalid actions in a row")
