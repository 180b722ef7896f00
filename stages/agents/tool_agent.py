"""An agent that calls tools: a turn with calls is answered call by call, a turn without is the answer.

It executes nothing; the environment does, and refuses what is not a whole, valid call.
"""

import functools

from stages.agents.agent import Ending, Setting
from stages.agents.conversation import converse
from stages.text.transcript import Transcript


class ToolAgent:
    """Turns with tool calls, read by the chat's own format."""

    async def run(self, setting: Setting, transcript: Transcript) -> Ending:
        """See ``Agent.run``. Calls in the last turn there is are not executed: nobody would read the answers."""
        read = functools.partial(setting.chat.read, tools=setting.opening.tools)
        return await converse(setting, transcript, read, skip_last_calls=True)
