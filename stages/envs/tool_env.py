"""An environment of tools: every call is answered once, under its own id, and a turn without a call is the final answer.

It executes nothing that is not a whole, valid call of a tool it has. Calls of one turn run one after another, in the order in
which the model wrote them, since a later one may count on the effect of an earlier one; those of tools that are declared
``parallel`` run together with their neighbours of the kind. Each call leaves its rows in the audit log.
"""

import itertools
from collections.abc import Collection, Iterator, Sequence
from contextlib import AsyncExitStack

import anyio

from stages.envs.environment import Opening, Reply, Scorer, opening_messages
from stages.records import BadCall, Message, Status, Task, ToolCall
from stages.tools.audited import AuditedCalls
from stages.tools.credentials import Uses, blanked_errors, uses_into
from stages.tools.tool import Tool, ToolAnswer, Toolset

Call = ToolCall | BadCall


class ToolEnv:
    """A task with tools."""

    def __init__(
        self,
        tools: Sequence[Tool | Toolset],
        *,
        system: str | None = None,
        max_turns: int | None = None,
        max_invalid: int = 3,
        max_calls_per_turn: int = 8,
        parallel: bool | Collection[str] = False,
        max_reply_chars: int = 100_000,
        scorer: Scorer | None = None,
    ):
        """Configure.

        Args:
            tools: with names that differ. Those of a ``Toolset`` are opened by ``reset`` and closed by ``close``.
            system: text of a system message; ``None`` for none.
            max_turns: a call in this turn is not executed and ends the episode; ``None`` leaves the limit to the agent.
            max_invalid: the episode ends after so many invalid calls in a row: bad syntax, an unknown tool, or arguments
                that do not fit. A tool's own failure is not one. Further calls of that turn are not executed, but for those
                that ran beside it.
            max_calls_per_turn: calls beyond it are answered with an error and not executed.
            parallel: names of tools whose calls may run side by side within a turn, ``True`` for all: those that change
                nothing another call reads.
            max_reply_chars: longest answer, in characters, of a tool that keeps no limit itself.
            scorer: scores the conversation; ``None`` leaves it to the reward stage.

        Raises:
            ValueError: two tools share a name; of those of a ``Toolset`` raised by ``reset``.
        """
        self._fixed = tuple(tool for tool in tools if not isinstance(tool, Toolset))
        self._toolsets = tuple(tool for tool in tools if isinstance(tool, Toolset))
        self._tools = _by_name(self._fixed)
        self._system = system
        self._max_turns = max_turns
        self._max_invalid = max_invalid
        self._max_calls = max_calls_per_turn
        self._parallel = parallel
        self._max_reply_chars = max_reply_chars
        self._scorer = scorer
        self._open = AsyncExitStack()
        self._calls: AuditedCalls
        self._task: Task | None = None
        self._said: list[Message] = []
        self._invalid = 0

    async def reset(self, task: Task, key: tuple[int, int, int, int]) -> Opening:
        """See ``Environment.reset``. Closes what an episode before has left open."""
        await self._free()
        self._task, self._said, self._invalid = task, [], 0
        self._calls = AuditedCalls(task, key, self._max_reply_chars)
        tools = list(self._fixed)
        with uses_into(Uses(self._calls.secrets)), blanked_errors():
            for toolset in self._toolsets:
                tools += await self._open.enter_async_context(toolset.open(key))
        self._tools = _by_name(tools)
        return Opening(opening_messages(task, self._system), tuple(tools))

    async def step(self, message: Message) -> Reply:
        """See ``Environment.step``.

        Raises:
            BrokenToolError: by a tool whose outcome would say nothing about the policy.
        """
        return await self.answer(message, len(self._said))

    async def answer(self, message: Message, turn: int) -> Reply:
        """Answer a turn, as ``step`` does, for an environment that has others answer some of the turns.

        Args:
            message: the turn.
            turn: its number in the conversation, from 0; for the audit log, and the random draws of tools.

        Raises:
            BrokenToolError: see ``step``.
        """
        self._said.append(message)
        if not message.calls:
            return Reply(end=Status.FINISHED)
        if self._max_turns is not None and turn + 1 >= self._max_turns:
            reason = f"still calling tools in turn {turn + 1} of {self._max_turns}"
            return Reply(self._unmade(message.calls, turn, "no turn is left"), Status.TRUNCATED_TURNS, reason)
        return await self._answer_all(message.calls, turn)

    async def score(self) -> dict[str, float] | None:
        """See ``Environment.score``."""
        if self._scorer is None or self._task is None:
            return None
        return self._scorer(self._task, tuple(self._said))

    async def close(self) -> None:
        """Close the toolsets, all of them also where one fails. Harmless the second time."""
        await self._free()

    async def _free(self) -> None:
        opened, self._open = self._open, AsyncExitStack()
        await opened.aclose()

    async def _answer_all(self, calls: Sequence[Call], turn: int) -> Reply:
        replies: list[Message] = []
        for group in self._groups(calls):
            answers = await self._together(group, turn, len(replies))
            replies += [Message("tool", answer.text, call_id=call.id) for call, answer in zip(group, answers, strict=True)]
            if self._too_many_invalid(answers):
                reason = f"{self._max_invalid} invalid calls in a row"
                rest = self._unmade(calls[len(replies) :], turn, reason)
                return Reply((*replies, *rest), Status.TRUNCATED_TURNS, reason)
        return Reply(tuple(replies))

    def _groups(self, calls: Sequence[Call]) -> Iterator[Sequence[Call]]:
        """The calls in order, neighbours that may run side by side together."""
        for beside, neighbours in itertools.groupby(calls, self._beside):
            group = tuple(neighbours)
            yield from [group] if beside else [(call,) for call in group]

    def _beside(self, call: Call) -> bool:
        if isinstance(call, BadCall) or call.name not in self._tools:
            return False
        return self._parallel if isinstance(self._parallel, bool) else call.name in self._parallel

    async def _together(self, group: Sequence[Call], turn: int, first: int) -> Sequence[ToolAnswer]:
        """Answers in the order of the calls. Where one raises, the others are cancelled, and it is raised alone."""
        if len(group) == 1:
            return [await self._answer(group[0], turn, first)]
        answers: dict[int, ToolAnswer] = {}
        errors: list[Exception] = []

        async def answer(place: int, call: Call) -> None:
            try:
                answers[place] = await self._answer(call, turn, first + place)
            except Exception as error:
                errors.append(error)
                tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            for place, call in enumerate(group):
                tasks.start_soon(answer, place, call)
        if errors:
            raise errors[0]
        return [answers[place] for place in range(len(group))]

    async def _answer(self, call: Call, turn: int, index: int) -> ToolAnswer:
        if isinstance(call, BadCall):
            return self._calls.refuse(call, turn, call.problem)
        if index >= self._max_calls:
            return self._calls.refuse(call, turn, f"expected at most {self._max_calls} calls in one turn")
        tool = self._tools.get(call.name)
        if tool is None:
            return self._calls.refuse(call, turn, f"expected one of {', '.join(self._tools)}, got {call.name[:40]}")
        return await self._calls.make(tool, call, turn, index)

    def _unmade(self, calls: Sequence[Call], turn: int, why: str) -> tuple[Message, ...]:
        """Replies to calls that are not made because the episode is over."""
        answers = [self._calls.refuse(call, turn, f"not executed: {why}", "unmade") for call in calls]
        return tuple(Message("tool", answer.text, call_id=call.id) for call, answer in zip(calls, answers, strict=True))

    def _too_many_invalid(self, answers: Sequence[ToolAnswer]) -> bool:
        for answer in answers:
            self._invalid = self._invalid + 1 if answer.outcome == "invalid" else 0
            if self._invalid >= self._max_invalid:
                return True
        return False


def _by_name(tools: Sequence[Tool]) -> dict[str, Tool]:
    found = {tool.name: tool for tool in tools}
    if len(found) != len(tools):
        names = [tool.name for tool in tools]
        raise ValueError(f"expected tools with names that differ; got {names}, in ToolEnv(tools); rename one of them")
    return found
