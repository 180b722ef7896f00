"""The calls of one episode: each is made once, leaves audit rows of its start and its end, and gives no secret away.

Not the audit log, which is the run's (``audit.py``), and not the rules of what is called, which are the environment's.
"""

import asyncio
import json
from collections.abc import Collection, Mapping
from typing import Any

import anyio

import flow
from stages.cancellation import cancel_requested
from stages.exits import exits_as_errors
from stages.records import BadCall, Task, ToolCall
from stages.tools.context import tool_context, tool_context_with
from stages.tools.credentials import Uses, blanked, blanked_errors, used_secrets, uses_into
from stages.tools.tool import BrokenToolError, Tool, ToolAnswer, bounded, failure

MAX_ARGUMENTS_CHARS = 500


class AuditedCalls:
    """Makes the calls of one episode.

    Attributes:
        secrets: secrets used in the episode so far, with the name of each; blanked out of every answer and error.
    """

    def __init__(self, task: Task, key: tuple[int, int, int, int], max_reply_chars: int):
        """Begin an episode.

        Args:
            task: what the episode is about.
            key: (seed, birth, member, retry).
            max_reply_chars: longest answer, in characters.
        """
        self.secrets = used_secrets()
        self._task = task
        self._key = key
        self._max_reply_chars = max_reply_chars

    async def make(self, tool: Tool, call: ToolCall, turn: int, index: int) -> ToolAnswer:
        """Make a call.

        Raises:
            Exception: what the tool raised, its text without secrets.
        """
        uses = Uses(self.secrets)
        outcome, started = "cancelled", anyio.current_time()
        key = f"{tool_context().key}/{turn}.{index}"
        with uses_into(uses), flow.span(tool.name, call=call.id), tool_context_with(key=key):
            self._told(call, turn, "started", None, ())
            try:
                answer = await _called(tool, call.arguments, (*self._key, turn, index))
                outcome = answer.outcome
                return ToolAnswer(bounded(blanked(answer.text), self._max_reply_chars), outcome)
            except Exception as error:
                outcome = "broken" if isinstance(error, BrokenToolError) else "raised"
                raise
            finally:
                self._told(call, turn, outcome, anyio.current_time() - started, uses.names)

    def refuse(self, call: ToolCall | BadCall, turn: int, problem: str, outcome: str = "invalid") -> ToolAnswer:
        """Answer a call that is not made."""
        with uses_into(Uses(self.secrets)):
            self._told(call, turn, outcome, 0.0, ())
            text = bounded(f"error: {blanked(problem)}", self._max_reply_chars)
        return ToolAnswer(text, "invalid" if outcome == "invalid" else "failed")

    def _told(self, call: ToolCall | BadCall, turn: int, outcome: str, seconds: float | None, names: Collection[str]) -> None:
        context, (_, birth, member, retry) = tool_context(), self._key
        row: dict[str, Any] = {"task": self._task.id, "birth": birth, "member": member, "retry": retry}
        row |= {"attempt": context.attempt, "turn": turn, "call": call.id}
        row |= {"tool": None, "arguments": None} if isinstance(call, BadCall) else _of(call)
        row |= {"credentials": sorted(names), "outcome": outcome, "seconds": seconds}
        context.audit(row)


async def _called(tool: Tool, arguments: Mapping[str, Any], key: tuple[int, ...]) -> ToolAnswer:
    try:
        with blanked_errors(), exits_as_errors():
            return await tool.call(arguments, key)
    except asyncio.CancelledError:
        if cancel_requested():
            raise
        return failure("the call was cancelled")


def _of(call: ToolCall) -> dict[str, Any]:
    arguments = blanked(json.dumps(call.arguments, ensure_ascii=False, default=str))
    return {"tool": bounded(blanked(call.name), 64), "arguments": bounded(arguments, MAX_ARGUMENTS_CHARS)}
