"""An agent whose turns are plain text: nothing in them is a call. For tools see ``tool_agent.py``."""

import msgspec
import numpy as np

from stages.agents.conversation import Conversation
from stages.agents.custom import CustomAgent
from stages.records import Message


class ModelAgent(CustomAgent):
    """One turn of text per step of the environment."""

    async def converse(self, talk: Conversation) -> None:
        """See ``CustomAgent.converse``."""
        talk.open()
        while True:
            message = await talk.sample(lambda ids, turn: _as_text(talk, ids, turn))
            talk.hear((await talk.step(message)).messages)


def _as_text(talk: Conversation, ids: np.ndarray, turn: int) -> Message:
    chat, read = talk.setting.chat, talk.read(ids, turn)
    stopped = len(ids) > 0 and int(ids[-1]) in chat.stop_ids
    text = chat.decode(ids[:-1] if stopped else ids)
    return msgspec.structs.replace(read, content=text, calls=()) if read.calls else read
