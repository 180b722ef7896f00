"""An environment of tools: every call is answered once, under its own id, and a turn without a call is the final answer.

It executes nothing that is not a whole, valid call of a tool it has. Calls of one turn run one after another, in the order in
which the model wrote them, since a later one may count on the effect of an earlier one.
"""

from collections.abc import Sequence

from stages.envs.environment import Opening, Reply, Scorer, opening_messages
from stages.records import BadCall, Message, Status, Task, ToolCall
from stages.tools.tool import Tool, ToolAnswer


class ToolEnv:
    """A task with tools."""

    def __init__(
        self,
        tools: Sequence[Tool],
        *,
        system: str | None = None,
        max_turns: int | None = None,
        max_invalid: int = 3,
        max_calls_per_turn: int = 8,
        scorer: Scorer | None = None,
    ):
        """Configure.

        Args:
            tools: with names that differ.
            system: text of a system message; ``None`` for none.
            max_turns: a call in this turn is not executed and ends the episode; ``None`` leaves the limit to the agent.
            max_invalid: the episode ends after so many invalid calls in a row: bad syntax, an unknown tool, or arguments
                that do not fit. A tool's own failure is not one.
            max_calls_per_turn: calls beyond it are answered with an error and not executed.
            scorer: scores the conversation; ``None`` leaves it to the reward stage.

        Raises:
            ValueError: two tools share a name.
        """
        self._tools = {tool.name: tool for tool in tools}
        if len(self._tools) != len(tools):
            names = [tool.name for tool in tools]
            raise ValueError(f"expected tools with names that differ; got {names}, in ToolEnv(tools); rename one of them")
        self._system = system
        self._max_turns = max_turns
        self._max_invalid = max_invalid
        self._max_calls = max_calls_per_turn
        self._scorer = scorer
        self._task: Task | None = None
        self._key = (0, 0, 0, 0)
        self._said: list[Message] = []
        self._invalid = 0

    async def reset(self, task: Task, key: tuple[int, int, int, int]) -> Opening:
        """See ``Environment.reset``."""
        self._task, self._key, self._said, self._invalid = task, key, [], 0
        return Opening(opening_messages(task, self._system), tuple(self._tools.values()))

    async def step(self, message: Message) -> Reply:
        """See ``Environment.step``.

        Raises:
            BrokenToolError: by a tool whose outcome would say nothing about the policy.
        """
        turn = len(self._said)
        self._said.append(message)
        if not message.calls:
            return Reply(end=Status.FINISHED)
        if self._max_turns is not None and turn + 1 >= self._max_turns:
            return Reply(end=Status.TRUNCATED_TURNS, reason=f"still calling tools in turn {turn + 1} of {self._max_turns}")
        replies = []
        for index, call in enumerate(message.calls):
            answer = await self._answer(call, turn, index)
            self._invalid = self._invalid + 1 if answer.outcome == "invalid" else 0
            replies.append(Message("tool", answer.text, call_id=call.id))
            if self._invalid >= self._max_invalid:
                reason = f"{self._invalid} invalid calls in a row"
                return Reply(tuple(replies), Status.TRUNCATED_TURNS, reason)
        return Reply(tuple(replies))

    async def score(self) -> dict[str, float] | None:
        """See ``Environment.score``."""
        if self._scorer is None or self._task is None:
            return None
        return self._scorer(self._task, tuple(self._said))

    async def close(self) -> None:
        """Nothing to free."""

    async def _answer(self, call: ToolCall | BadCall, turn: int, index: int) -> ToolAnswer:
        if isinstance(call, BadCall):
            return ToolAnswer(f"error: {call.problem}", "invalid")
        if index >= self._max_calls:
            return ToolAnswer(f"error: expected at most {self._max_calls} calls in one turn", "invalid")
        tool = self._tools.get(call.name)
        if tool is None:
            return ToolAnswer(f"error: expected one of {', '.join(self._tools)}, got {call.name[:40]}", "invalid")
        return await tool.call(call.arguments, (*self._key, turn, index))
