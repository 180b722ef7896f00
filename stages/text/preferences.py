"""Preferences as groups of two token episodes, so that they go through the same scoring and packing as everything else.

Not a loader (``stages/tasks/preferences.py`` is). The log-probabilities of the reference are for the scoring stage behind it.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from flow import Context
from stages.records import Episode, Example, Group, Preference
from stages.text.chat import Chat, ToolSpec
from stages.text.demonstrations import demonstrate


class WritePreference:
    """Stage: a preference in, a group out: the chosen reply with advantage 1, then the rejected one with -1."""

    def __init__(self, chat: Chat, tools: Sequence[ToolSpec] = ()):
        """Keep the format and the tools.

        Args:
            chat: how conversations are written.
            tools: the tools of every preference.
        """
        self._chat = chat
        self._tools = tuple(tools)

    async def __call__(self, preference: Preference, context: Context) -> Group:
        """Write both replies, each behind the prompt.

        Raises:
            ValueError: a reply has no assistant message to learn from, or cannot be written.
        """
        return write_preference(preference, self._chat, self._tools, birth=context.birth)


def write_preference(preference: Preference, chat: Chat, tools: Sequence[ToolSpec], *, birth: int) -> Group:
    """Both replies of a preference, each behind the prompt: the chosen one with advantage 1, then the rejected one with -1.

    Raises:
        ValueError: a reply has no assistant message to learn from, or cannot be written.
    """
    chosen, rejected = (_reply(preference, member, chat, tools, birth) for member in range(2))
    advantages = (chosen.mask.astype(np.float32), -rejected.mask.astype(np.float32))
    return Group(birth, (chosen, rejected), advantages, live=(True, True))


def _reply(preference: Preference, member: int, chat: Chat, tools: Sequence[ToolSpec], birth: int) -> Episode:
    messages = preference.prompt + (preference.rejected if member else preference.chosen)
    episode = demonstrate(Example(preference.id, messages), chat, tools, birth=birth, member=member)
    turns = episode.turns[sum(message.role == "assistant" for message in preference.prompt) :]
    mask = episode.mask & (np.arange(len(episode.ids)) >= turns[0].start)
    return msgspec.structs.replace(episode, mask=mask, turns=turns)
