"""The base of an environment of one's own: four methods, plain or async, that may answer with plain text.

``hosted`` makes an ``Environment`` of one. Plain methods run in the environment's own thread, so they may block; the loop is
never held. The shortest is some ten lines::

    class Guess(CustomEnv):
        def reset(self, task, key):
            self.secret = int(task.answer)
            return task.prompt

        def step(self, message):
            if message.content == str(self.secret):
                return over()
            return "higher or lower"
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from stages.envs.environment import Environment, Opening, Reply
from stages.envs.home_thread import HomeThread
from stages.envs.tool_env import ToolEnv
from stages.records import Message, Status, Task
from stages.tools.tool import Tool


class CustomEnv(ABC):
    """One episode's environment. Each method may be a plain one or a coroutine function.

    Attributes:
        tools: shown to the model; their calls are answered as ``ToolEnv`` answers them, and ``step`` gets only turns without.
    """

    tools: Sequence[Tool] = ()

    @abstractmethod
    def reset(self, task: Task, key: tuple[int, int, int, int]) -> Any:
        """Begin; see ``Environment.reset``.

        Returns:
            The text of the first user message; or the messages; or an ``Opening``, which may show tools.
        """

    @abstractmethod
    def step(self, message: Message) -> Any:
        """Answer a turn; see ``Environment.step``. What a model says is anything at all: answer it, and raise nothing.

        Returns:
            The text that the model reads next; or messages; or a ``Reply``, as ``earned``, ``over`` and ``cut`` give
            one. A call that is not answered under its own id is answered with an error.
        """

    def score(self) -> Any:
        """Score the episode; see ``Environment.score``.

        Returns:
            Reward by part; a number, which is the part ``reward``; or ``None``, which leaves it to the reward stage.
        """
        return None

    def close(self) -> Any:
        """Free what the other methods took, also where they failed or were cut short."""
        return None


def earned(reward: float, text: str | None = None) -> Reply:
    """The reply to a turn that earned something, in an episode that goes on.

    Args:
        reward: see ``Reply.reward``.
        text: what the model reads next; ``None`` for nothing.
    """
    return Reply(_said(text), reward=reward)


def over(text: str | None = None, reward: float | None = None) -> Reply:
    """The reply that ends an episode by the rules of its task.

    Args:
        text: a last word for the record; ``None`` for none.
        reward: what the last turn earned; see ``Reply.reward``.
    """
    return Reply(_said(text), Status.FINISHED, reward=reward)


def cut(reason: str, text: str | None = None, reward: float | None = None) -> Reply:
    """The reply that cuts an episode short.

    Args:
        reason: one line on the limit that cut it.
        text: what the model would have read next; ``None`` for nothing.
        reward: what the last turn earned; see ``Reply.reward``.
    """
    return Reply(_said(text), Status.TRUNCATED_TURNS, reason, reward)


def _said(text: str | None) -> tuple[Message, ...]:
    return () if text is None else (Message("user", text),)


def hosted(env: Environment | CustomEnv, thread: HomeThread) -> Environment:
    """An environment with async methods of one that may have plain ones; any other as it is.

    Args:
        env: what somebody made.
        thread: where plain methods run.
    """
    return HostedEnv(env, thread) if isinstance(env, CustomEnv) else env


class HostedEnv:
    """A ``CustomEnv`` as an ``Environment``."""

    def __init__(self, env: CustomEnv, thread: HomeThread):
        """Take one over.

        Args:
            env: the environment.
            thread: where its plain methods run.
        """
        self._env = env
        self._thread = thread
        self._tools: ToolEnv | None = None
        self._turn = 0

    async def reset(self, task: Task, key: tuple[int, int, int, int]) -> Opening:
        """See ``Environment.reset``.

        Raises:
            TypeError: it gave none of what a reset may give.
        """
        self._turn = 0
        await self._free()
        given = await self._call(self._env.reset, task, key)
        opening = given if isinstance(given, Opening) else Opening(_messages(given, self._env, "reset", "an Opening"))
        if not self._env.tools:
            return opening
        self._tools = ToolEnv(self._env.tools)
        shown = await self._tools.reset(task, key)
        return msgspec.structs.replace(opening, tools=(*opening.tools, *shown.tools))

    async def step(self, message: Message) -> Reply:
        """See ``Environment.step``.

        Raises:
            TypeError: it gave none of what a step may give.
        """
        turn, self._turn = self._turn, self._turn + 1
        if self._tools is not None and message.calls:
            return await self._tools.answer(message, turn)
        given = await self._call(self._env.step, message)
        reply = given if isinstance(given, Reply) else Reply(_messages(given, self._env, "step", "a Reply"))
        return _answering(message, reply)

    async def score(self) -> dict[str, float] | None:
        """See ``Environment.score``."""
        given = await self._call(self._env.score)
        return given if given is None or isinstance(given, dict) else {"reward": given}

    async def close(self) -> None:
        """See ``Environment.close``. A plain ``close`` runs after what runs now, also where nobody waits for it any more."""
        try:
            await self._close()
        finally:
            await self._free()

    async def _free(self) -> None:
        """Close the tools of the episode before."""
        if self._tools is not None:
            await self._tools.close()

    async def _close(self) -> None:
        if inspect.iscoroutinefunction(self._env.close):
            await self._env.close()
        else:
            await self._thread.finish(self._env.close)

    async def _call(self, method: Callable[..., Any], *args: Any) -> Any:
        if inspect.iscoroutinefunction(method):
            return await method(*args)
        return await self._thread.call(method, *args)


def _messages(given: Any, env: CustomEnv, method: str, kind: str) -> tuple[Message, ...]:
    if isinstance(given, str):
        return (Message("user", given),)
    if isinstance(given, Sequence) and all(isinstance(message, Message) for message in given):
        return tuple(given)
    raise TypeError(
        f"expected text, messages or {kind}; got {type(given).__name__}, from {type(env).__name__}.{method}; "
        f"return one of these{', or over() to end' if method == 'step' else ''}"
    )


def _answering(message: Message, reply: Reply) -> Reply:
    """The reply with an error for each call that it leaves unanswered."""
    answered = {answer.call_id for answer in reply.messages if answer.role == "tool"}
    missing = [call for call in message.calls if call.id not in answered]
    if not missing or reply.end is not None:
        return reply
    errors = tuple(Message("tool", "error: expected no call of this kind here", call_id=call.id) for call in missing)
    return msgspec.structs.replace(reply, messages=(*errors, *reply.messages))
