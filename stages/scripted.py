"""A policy that says what a script has, for trying environments and agents without a model. For tests, examples, ``try``.

Not an engine, and it learns nothing: log-probabilities are 0, versions too.
"""

from collections.abc import Callable, Sequence

import numpy as np

from stages.policy import Sample, SampleRequest
from stages.records import Message
from stages.text.chat import Chat

Says = Callable[[str, int], str | Message]
"""The conversation so far as text, marks shown, and the number of the turn -> what is said in it."""


class ScriptedPolicy:
    """A ``Policy`` by script. Serves any number of episodes at once: what it says depends on the request alone."""

    def __init__(self, chat: Chat, says: Says | Sequence[str | Message], *, context_length: int = 4096):
        """Learn a script.

        Args:
            chat: writes what is said.
            says: what is said in each turn of an episode; or a function of the conversation. After the end of a list its last
                turn is said again.
            context_length: most tokens of an episode.

        Raises:
            ValueError: an empty list.
        """
        if not callable(says) and not says:
            raise ValueError("expected at least one turn; got an empty list, in ScriptedPolicy(says); give it something to say")
        self._chat = chat
        self._says = says
        self.context_length = context_length

    async def sample(self, request: SampleRequest) -> Sample:
        """See ``Policy.sample``. A turn that is longer than the budget is cut."""
        said = self._said(request)
        ids = self._chat.write(Message("assistant", said) if isinstance(said, str) else said)
        kept = ids[: request.max_tokens]
        stop = "stop" if len(kept) == len(ids) else "length"
        return Sample(kept, np.zeros(len(kept), np.float32), np.zeros(len(kept), np.int32), stop)

    def release(self, session: str) -> None:
        """Nothing is kept."""

    def abort(self, session: str) -> None:
        """Nothing takes long."""

    def _said(self, request: SampleRequest) -> str | Message:
        turn = request.key[-1]
        if callable(self._says):
            return self._says(self._chat.decode(request.ids), turn)
        return self._says[min(turn, len(self._says) - 1)]
