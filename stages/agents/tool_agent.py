"""An agent that calls tools: a turn with calls is answered call by call, a turn without is the answer.

It executes nothing; the environment does, and refuses what is not a whole, valid call.
"""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from stages.agents.agent import Ending
from stages.agents.conversation import Conversation, Ended
from stages.agents.custom import CustomAgent
from stages.records import BadCall, Message, Status, ToolCall
from stages.text.chat import ToolSpec


class FinishTool:
    """How an agent shows the call by which the model answers. No ``Tool``: nothing executes it.

    Args:
        name: what the model calls.
    """

    def __init__(self, name: str = "finish"):
        self.name = name
        self.description = "Give the final answer and end."
        self.parameters: dict[str, Any] = {
            "type": "object",
            "properties": {"answer": {"type": "string", "description": "the final answer"}},
            "required": ["answer"],
        }


class ToolAgent(CustomAgent):
    """Turns with tool calls, read by the chat's own format."""

    def __init__(self, *, finish: FinishTool | None = None, on_invalid: Literal["answer", "end"] = "answer"):
        """Configure.

        Args:
            finish: a call of it, alone in its turn, is the answer, which the environment then gets as text; the record has the
                call, and after it the answer as a message. ``None``: a turn without a call is the answer, which it is besides.
            on_invalid: what comes of text that is no whole call, and of a call of a tool that is not shown: ``answer`` leaves
                it to the environment, which answers with an error; ``end`` ends the episode, with nothing of the turn executed.
                What the environment's opening says for its task goes first. Arguments are the environment's to judge.
        """
        self._finish = finish
        self._on_invalid = on_invalid

    def shown(self, tools: Sequence[ToolSpec]) -> list[ToolSpec]:
        """What the model is shown.

        Args:
            tools: of the environment; a finish call that stands among them is left out.

        Raises:
            ValueError: one of them has the name of the finish call.
        """
        others = [tool for tool in tools if not isinstance(tool, FinishTool)]
        if self._finish is None:
            return others
        if self._finish.name in {tool.name for tool in others}:
            raise ValueError(
                f"expected a finish call of a name of its own, got '{self._finish.name}', which a tool of the environment has, "
                "in ToolAgent(finish); give FinishTool another name"
            )
        return [*others, self._finish]

    async def converse(self, talk: Conversation) -> None:
        """See ``CustomAgent.converse``. Calls in the last turn there is are not executed: nobody would read the answers.

        Raises:
            ValueError: see ``shown``.
        """
        opening = talk.setting.opening
        tools = self.shown(opening.tools)
        talk.open(tools=tools)
        names = {tool.name for tool in tools}
        while True:
            message = self._checked(await talk.sample())
            problem = _problem(message, names)
            if problem is not None and (opening.on_invalid or self._on_invalid) == "end":
                raise Ended(Ending(Status.TRUNCATED_TURNS, f"an invalid call: {problem}"))
            answer = self._answer(message)
            if answer is not None:
                await _finish(talk, answer)
            if message.calls and talk.is_last_turn:
                raise talk.out_of_turns()
            talk.hear((await talk.step(message)).messages)

    def _checked(self, message: Message) -> Message:
        """The turn, in which a finish that is none is a bad call."""
        calls = tuple(self._finish_problem(call, len(message.calls)) or call for call in message.calls)
        return msgspec.structs.replace(message, calls=calls)

    def _finish_problem(self, call: ToolCall | BadCall, num_calls: int) -> BadCall | None:
        if self._finish is None or isinstance(call, BadCall) or call.name != self._finish.name:
            return None
        if num_calls > 1:
            return BadCall(call.id, f"expected {call.name} alone in its turn, got {num_calls} calls")
        if set(call.arguments) != {"answer"} or not isinstance(call.arguments["answer"], str):
            return BadCall(call.id, f"expected {call.name} with one text, answer, got {str(call.arguments)[:80]}")
        return None

    def _answer(self, message: Message) -> str | None:
        """What a turn that calls finish answers; ``None`` for any other turn."""
        call = message.calls[0] if message.calls else None
        if self._finish is None or not isinstance(call, ToolCall) or call.name != self._finish.name:
            return None
        return str(call.arguments["answer"])


async def _finish(talk: Conversation, answer: str) -> None:
    """Hand the answer to the environment, and end whatever it says."""
    said = Message("assistant", answer)
    talk.transcript.messages.append(said)
    reply = await talk.step(said)
    talk.transcript.messages.extend(reply.messages)
    raise Ended(Ending(Status.FINISHED))


def _problem(message: Message, names: set[str]) -> str | None:
    """What is wrong with the first invalid call of a turn; ``None`` where there is none."""
    for call in message.calls:
        if isinstance(call, BadCall):
            return call.problem
        if call.name not in names:
            return f"expected one of {', '.join(sorted(names)) or 'no tools'}, got {call.name[:40]}"
    return None
