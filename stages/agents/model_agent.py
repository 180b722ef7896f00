"""An agent whose turns are plain text: nothing in them is a call. For tools see ``tool_agent.py``."""

import msgspec
import numpy as np

from stages.agents.agent import Ending, Setting
from stages.agents.conversation import converse
from stages.records import Message
from stages.text.transcript import Transcript


class ModelAgent:
    """One turn of text per step of the environment."""

    async def run(self, setting: Setting, transcript: Transcript) -> Ending:
        """See ``Agent.run``."""

        def read_text(ids: np.ndarray, turn: int) -> Message:
            read = setting.chat.read(ids, turn, setting.opening.tools)
            stopped = len(ids) > 0 and int(ids[-1]) in setting.chat.stop_ids
            text = setting.chat.decode(ids[:-1] if stopped else ids)
            return msgspec.structs.replace(read, content=text, calls=()) if read.calls else read

        return await converse(setting, transcript, read_text, skip_last_calls=False)
