"""The base of an agent of one's own: one method, which says what is sampled and who hears it.

Whatever it does, tokens are only appended, budgets hold, and the record is whole wherever it is cut short::

    class CheckTwice(CustomAgent):
        async def converse(self, talk):
            talk.open()
            await talk.sample()
            talk.hear([Message("user", "are you sure? answer again")])
            await talk.step(await talk.sample())
"""

from abc import ABC, abstractmethod

from stages.agents.agent import Ending, Setting
from stages.agents.conversation import Conversation, Ended
from stages.records import Status
from stages.text.transcript import Transcript


class CustomAgent(ABC):
    """An ``Agent`` out of one method. One object serves many episodes at once, so it keeps nothing of one."""

    @abstractmethod
    async def converse(self, talk: Conversation) -> Ending | None:
        """Hold one conversation: ``talk.open()``, then any of ``sample``, ``step`` and ``hear``.

        Returns:
            How it ended; ``None`` for finished. ``Ended``, which the methods of ``talk`` raise, is to pass through.
        """

    async def run(self, setting: Setting, transcript: Transcript) -> Ending:
        """See ``Agent.run``."""
        try:
            ending = await self.converse(Conversation(setting, transcript))
        except Ended as over:
            return over.ending
        return ending or Ending(Status.FINISHED)
