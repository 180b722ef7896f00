"""A task of the ``verifiers`` package: its set-up, tools, stop conditions and scores, with our agent as its model.

``verifiers_tasks`` gives the tasks of a taskset, ``VerifiersEnv`` plays them. Tools run where ``verifiers`` puts them, as MCP
servers of the rollout. Runtimes other than the local subprocess, users that another model plays, and images are not carried
over.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from stages.envs.adapters.verifiers_run import VerifiersRun
from stages.envs.environment import Opening, Reply
from stages.records import BadCall, Message, Status, Task, ToolCall
from stages.tools.tool import Tool, ToolAnswer, bounded


class VerifiersError(RuntimeError):
    """A rollout failed: that says nothing about the policy."""


def verifiers_tasks(taskset: Any, *, limit: int | None = None) -> tuple[Task, ...]:
    """The tasks of a taskset, in its order.

    Args:
        taskset: a ``verifiers.v1.Taskset``, or a view of one.
        limit: most tasks, which an infinite taskset needs; ``None`` for all.
    """
    tasks = []
    for index, task in enumerate(taskset):
        if index == limit:
            break
        name = type(taskset).__name__
        tasks.append(Task(f"{name}-{task.key[:16]}", task.data.prompt_text, None, name, {"index": index}))
    return tuple(tasks)


class ShownTool:
    """A tool as a request shows it to the model. Whoever made the request executes it."""

    def __init__(self, function: Mapping[str, Any]) -> None:
        self.name = str(function["name"])
        self.description = str(function.get("description", ""))
        self.parameters = dict(function.get("parameters", {}))

    async def call(self, arguments: Mapping[str, Any], key: tuple[int, ...]) -> ToolAnswer:
        """Not for us: raises ``VerifiersError``."""
        raise VerifiersError(
            f"expected the rollout to call {self.name}; got a call from outside, in ShownTool; use VerifiersEnv"
        )


class VerifiersEnv:
    """One rollout.

    The score's part ``reward`` is the rollout's weighted sum; beside it are each reward and metric under its own name. An
    episode that was cut short is scored as far as it came.
    """

    def __init__(self, taskset: Sequence[Any], *, max_turns: int | None = None, max_invalid: int = 3, max_chars: int = 4000):
        """Configure.

        Args:
            taskset: the tasks themselves, ``list(taskset)``: ``task.extra["index"]`` is a place in it.
            max_turns: limit of the rollout; ``None`` leaves it to the agent.
            max_invalid: the episode ends after so many turns in a row with a call that cannot be read. Such a turn is answered
                here, and nothing of it is executed or seen by the task.
            max_chars: most characters of a message.
        """
        self._taskset, self._max_turns, self._max_chars, self._max_invalid = taskset, max_turns, max_chars, max_invalid
        self._run: VerifiersRun | None = None
        self._asked: list[dict[str, Any]] = []

    async def reset(self, task: Task, key: tuple[int, int, int, int]) -> Opening:
        """See ``Environment.reset``. A rollout draws nothing from the key: what chance a task has is its own.

        Raises:
            MissingPackageError: the package is not installed.
            VerifiersError: the rollout failed before it asked anything.
        """
        self._invalid = 0
        self._run = VerifiersRun(self._taskset[task.extra["index"]], self._max_turns)
        self._run.start()
        request = await self._run.request()
        if request is None:
            raise self._failed(self._run.trace())
        self._asked = request["messages"]
        tools: tuple[Tool, ...] = tuple(ShownTool(tool["function"]) for tool in request.get("tools", ()))
        return Opening(tuple(self._message(message) for message in self._asked), tools)

    async def step(self, message: Message) -> Reply:
        """See ``Environment.step``.

        Raises:
            VerifiersError: the rollout failed, or rewrote what was said.
        """
        assert self._run is not None
        if any(isinstance(call, BadCall) for call in message.calls):
            return self._refuse(message)
        self._invalid = 0
        self._run.answer(_wire(message), "tool_calls" if message.calls else "stop")
        request = await self._run.request()
        if request is None:
            return self._ended()
        said, self._asked, before = request["messages"], request["messages"], self._asked
        if said[: len(before)] != before:
            raise VerifiersError(
                f"expected the conversation so far, {len(before)} messages, to stand; got it rewritten, from the rollout of "
                "verifiers; leave out what compacts or edits it"
            )
        return Reply(tuple(self._message(each) for each in said[len(before) + 1 :]))

    async def score(self) -> dict[str, float]:
        """See ``Environment.score``. A rollout that still waits for a turn gets an empty one, cut by length, which ends it."""
        assert self._run is not None
        for _ in range(3):
            if self._run.waits:
                self._run.answer({"role": "assistant", "content": ""}, "length")
            if await self._run.request() is None:
                break
        else:
            raise VerifiersError("expected the rollout to end; got another request, in VerifiersEnv.score; see its task")
        trace = self._run.trace()
        rewards = {name: reward.value for name, reward in trace.rewards.items() if reward is not None}
        parts = {**{name: value for name, value in trace.metrics.items() if value is not None}, **rewards}
        if not trace.ok or (trace.rewards and not rewards):
            raise self._failed(trace)
        return {**{name: float(value) for name, value in parts.items() if math.isfinite(value)}, "reward": float(trace.reward)}

    async def close(self) -> None:
        """See ``Environment.close``. Ends the rollout and its servers."""
        run, self._run = self._run, None
        if run is not None:
            await run.stop()

    def _ended(self) -> Reply:
        assert self._run is not None
        trace = self._run.trace()
        if trace.is_truncated:
            return Reply(end=Status.TRUNCATED_TURNS, reason=f"stopped by verifiers: {trace.stop_condition}")
        if not trace.ok:
            raise self._failed(trace)
        return Reply(end=Status.FINISHED)

    def _refuse(self, message: Message) -> Reply:
        self._invalid += 1
        unread = "not executed, since another call of the turn could not be read"
        replies = tuple(
            Message("tool", f"error: {call.problem if isinstance(call, BadCall) else unread}", call_id=call.id)
            for call in message.calls
        )
        if self._invalid < self._max_invalid:
            return Reply(replies)
        return Reply(replies, Status.TRUNCATED_TURNS, f"{self._invalid} turns in a row with a call that cannot be read")

    def _message(self, wire: Mapping[str, Any]) -> Message:
        content = wire.get("content") or ""
        text = content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)
        role = "system" if wire["role"] == "developer" else wire["role"]
        calls = tuple(
            ToolCall(call["id"], call["function"]["name"], json.loads(call["function"]["arguments"]))
            for call in wire.get("tool_calls") or ()
        )
        return Message(role, bounded(text, self._max_chars), calls, wire.get("tool_call_id"))

    def _failed(self, trace: Any) -> VerifiersError:
        errors = "; ".join(f"{error.type}: {error.message}" for error in trace.errors) or f"stopped by {trace.stop_condition}"
        return VerifiersError(f"expected a rollout that asks and is scored; got {errors[:300]}, from verifiers; see its task")


def _wire(message: Message) -> dict[str, Any]:
    """A turn as the chat-completions wire has it. All its calls are whole ones."""
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": json.dumps(call.arguments)}}
        for call in message.calls
        if isinstance(call, ToolCall)
    ]
    return {"role": "assistant", "content": message.content, **({"tool_calls": calls} if calls else {})}
