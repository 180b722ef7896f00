"""What stands between an agent and its policy and environment: time limits, checks, spans, and whose fault it was.

An agent sees the same two protocols and needs to know none of this. Every failure leaves as one ``EpisodeError`` with its
status; a cancellation that somebody asked for passes through untouched.
"""

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple, ParamSpec, TypeVar

import anyio
import msgspec
import numpy as np
import pydantic

from flow import Context
from stages.agents.part_clock import PartClock
from stages.agents.step_clock import StepClock
from stages.cancellation import cancel_requested
from stages.envs.answers import AnswerError, checked_opening, checked_reply, checked_score
from stages.envs.environment import Environment, Opening, Reply
from stages.envs.shown_tool import ShownTool
from stages.exits import exits_as_errors
from stages.policy import Policy, PolicyEnded, Sample, SampleRequest
from stages.records import Message, Status, Task
from stages.tools.context import UndeclaredPoolError, tool_context_with
from stages.tools.credentials import blanked
from stages.tools.tool import BrokenToolError

P = ParamSpec("P")
T = TypeVar("T")


class TimeLimits(pydantic.BaseModel):
    """Most seconds for each part of an episode. The node's own deadline holds besides."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    setup_s: float | None = pydantic.Field(default=60.0, gt=0)
    """For making the environment, waiting for one of a pool included; ``None`` for no limit. What is made later is closed."""
    reset_s: float | None = pydantic.Field(default=60.0, gt=0)
    """For the environment's ``reset``; ``None`` for no limit."""
    model_s: float | None = pydantic.Field(default=None, gt=0)
    """For one turn of the policy, waiting for the pool and a slot included; ``None`` for no limit. The turn is then aborted,
    and what it had come to is kept in the record of the episode."""
    abort_s: float = pydantic.Field(default=5.0, ge=0)
    """For the policy to hand that over: some steps of an engine. After them the turn is cancelled, and lost. So is
    whatever else an agent awaits when ``episode_s`` has passed by so much."""
    step_s: float | None = pydantic.Field(default=120.0, gt=0)
    """For one ``step`` of the environment, all its tools included, but not their wait for a pool or a rate; ``None`` for no
    limit."""
    score_s: float | None = pydantic.Field(default=60.0, gt=0)
    """For the environment's ``score``; ``None`` for no limit."""
    close_s: float = pydantic.Field(default=30.0, gt=0)
    """For the environment's ``close``. Always limited, since nothing can cut it short."""
    episode_s: float | None = pydantic.Field(default=None, gt=0)
    """For the whole conversation, every wait included; ``None`` for no limit. The turn or the step under way is cut short as by
    its own limit; what was sampled by then is kept for people, and not trained."""


class Limit(NamedTuple):
    """How long something may take."""

    seconds: float | None
    """``None`` for no limit."""
    late: str
    """What to say when it took longer."""


class ConversationClock:
    """How much of ``episode_s`` is left. Starts when it is made."""

    def __init__(self, limits: TimeLimits):
        self._most_s = limits.episode_s
        self._began_s = anyio.current_time()

    def limit(self, what: str, limit_s: float | None) -> Limit:
        """The limit of a part of the conversation: its own, or what is left of the whole."""
        if self._most_s is None:
            return limit(what, limit_s)
        left_s = max(0.0, self._began_s + self._most_s - anyio.current_time())
        if limit_s is not None and limit_s <= left_s:
            return limit(what, limit_s)
        return Limit(left_s, limit("the conversation", self._most_s).late)


def limit(what: str, limit_s: float | None) -> Limit:
    """A limit of its own, in seconds; ``None`` for none."""
    return Limit(limit_s, f"{what} took over {limit_s:g} s" if limit_s is not None else "")


class EpisodeError(Exception):
    """An episode failed for a reason that says nothing about the policy.

    Attributes:
        status: how the episode ends.
        reason: one line.
        sample: what the turn had come to that was cut short; ``None`` where there is nothing of it.
    """

    def __init__(self, status: Status, reason: str, sample: Sample | None = None):
        super().__init__(f"{status}: {reason}")
        self.status = status
        self.reason = reason
        self.sample = sample


async def guarded(work: Awaitable[T], status: Status, what: str, limit: Limit, grace_s: float = 0.0) -> T:
    """Await work that is not ours.

    Args:
        work: what to await.
        status: of an episode in which the work raises.
        what: what the work is, for the reason.
        limit: how long it may take.
        grace_s: seconds more, for work that is told otherwise to end when the limit has passed.

    Raises:
        EpisodeError: the work raised, cancelled itself, or took too long.
        PolicyEnded: it will never answer again.
        UndeclaredPoolError: the graph lacks what a tool names.
        asyncio.CancelledError: somebody asked for it.
    """
    try:
        with exits_as_errors(), anyio.move_on_after(None if limit.seconds is None else limit.seconds + grace_s):
            return await work
    except asyncio.CancelledError as error:
        if cancel_requested():
            raise
        raise EpisodeError(status, f"{what} was cancelled, though nobody asked for it") from error
    except EpisodeError:
        raise
    except (PolicyEnded, UndeclaredPoolError):
        # Of the run, not of this episode.
        raise
    except BrokenToolError as error:
        raise EpisodeError(Status.TOOL_ERROR, _told(what, error)) from error
    except Exception as error:
        raise EpisodeError(status, _told(what, error)) from error
    raise EpisodeError(Status.TIMED_OUT, limit.late)


class GuardedPolicy:
    """A policy whose samples are checked before anything is built on them, and whose turns are aborted when they take long.

    Where there is a pool, a turn takes a unit of it before the policy is asked. The wait is part of the turn: its time counts,
    and an abort ends it.
    """

    def __init__(self, policy: Policy, limits: TimeLimits, context: Context, clock: ConversationClock, pool: str | None = None):
        self._policy = policy
        self._clock = clock
        self._limits = limits
        self._context = context
        self._pool = pool
        self._waiting: dict[anyio.CancelScope, str] = {}
        """Waits for the pool, with the session that each is of."""

    @property
    def context_length(self) -> int:
        """See ``Policy``."""
        return self._policy.context_length

    async def sample(self, request: SampleRequest) -> Sample:
        """See ``Policy``; raises ``EpisodeError`` only, with what there is of a turn that was aborted.

        A pool that the graph has not is no failure of the episode: it raises ``LookupError``.
        """
        limit, late = self._clock.limit("the model", self._limits.model_s), False

        def abort() -> None:
            nonlocal late
            late = True
            self.abort(request.session)

        timer = None if limit.seconds is None else asyncio.get_running_loop().call_later(limit.seconds, abort)
        try:
            arrow = _new_arrow()
            args = {"turn": request.key[-1], "context_tokens": len(request.ids)}
            with self._context.span("model", flows=(arrow,), **args):
                sample = await self._asked(msgspec.structs.replace(request, flow=arrow), limit)
        finally:
            if timer is not None:
                timer.cancel()
        problem = sample_problem(sample, request)
        if problem is not None:
            raise EpisodeError(Status.MODEL_ERROR, f"the model's sample: {problem}")
        if sample.stop_reason == "aborted":
            part = sample if len(sample.ids) else None
            if late:
                raise EpisodeError(Status.TIMED_OUT, limit.late, part)
            raise EpisodeError(Status.CANCELLED, "the model's turn was aborted", part)
        return sample

    def release(self, session: str) -> None:
        """See ``Policy``."""
        self._policy.release(session)

    def abort(self, session: str) -> None:
        """See ``Policy``."""
        for scope, waits in self._waiting.items():
            if waits == session:
                scope.cancel()
        self._policy.abort(session)

    async def _asked(self, request: SampleRequest, limit: Limit) -> Sample:
        """What the policy says, or nothing where the turn was aborted before the policy was asked."""
        began = anyio.current_time()
        async with self._unit(request.session) as granted:
            if not granted:
                return _nothing()
            # The limit itself is kept by an abort; counted from here, it would come late by the wait.
            asked = anyio.current_time()
            grace_s = self._limits.abort_s - (asked - began)
            work = self._policy.sample(request)
            sample = await guarded(work, Status.MODEL_ERROR, "the model", limit, grace_s)
            self._show(sample, asked)
        waited = None if self._pool is None else asked - began + (sample.queue_s or 0.0)
        return sample if waited is None else msgspec.structs.replace(sample, queue_s=waited)

    def _show(self, sample: Sample, asked: float) -> None:
        """What the policy told of its time, as slices inside the turn's."""
        now = anyio.current_time()
        for name, seconds in (("queue", sample.queue_s), ("prefill", sample.prefill_s), ("decode", sample.decode_s)):
            if seconds is not None:
                began, asked = asked, min(asked + seconds, now)
                self._context.spent(name, began, asked)

    @asynccontextmanager
    async def _unit(self, session: str) -> AsyncGenerator[bool]:
        """Hold a unit of the pool, where there is one; gives whether it is held, or the wait was aborted."""
        if self._pool is None:
            yield True
            return
        async with AsyncExitStack() as held:
            with anyio.CancelScope() as scope:
                self._waiting[scope] = session
                try:
                    await held.enter_async_context(self._context.permit(self._pool))
                finally:
                    del self._waiting[scope]
            yield not scope.cancel_called


_ARROWS = itertools.count(time.time_ns())
"""Of all starts of a run, whose traces are read together."""


def _new_arrow() -> int:
    """A number for an arrow of a trace that no item has, whose numbers are hashes too, and no other turn."""
    return hash(("turn", next(_ARROWS))) % 2**64


def _nothing() -> Sample:
    return Sample(np.zeros(0, np.int32), np.zeros(0, np.float32), np.zeros(0, np.int32), "aborted")


def sample_problem(sample: Sample, request: SampleRequest) -> str | None:
    """What is wrong with a sample, expected and got in one line; ``None`` where nothing is."""
    count = len(sample.ids)
    if not count == len(sample.logprobs) == len(sample.versions):
        return f"expected arrays of one length, got {count}, {len(sample.logprobs)} and {len(sample.versions)}"
    least = 0 if sample.stop_reason == "aborted" else 1
    if not least <= count <= request.max_tokens:
        return f"expected {least} to {request.max_tokens} tokens, got {count}"
    bad = np.flatnonzero(~np.isfinite(sample.logprobs))
    if len(bad):
        return f"expected finite log-probabilities, got {sample.logprobs[bad[0]]} at token {bad[0]}"
    if np.min(sample.versions, initial=0) < 0:
        return f"expected versions from 0, got {np.min(sample.versions)}"
    # The other way round is no fault: a budget may run out on a stop token, and then the policy's word is what counts.
    # Where a stop string may have ended the turn, only the policy can tell: it alone reads the text as it comes.
    if sample.stop_reason == "stop" and not request.stop_strings and int(sample.ids[-1]) not in request.stop_ids:
        return f"expected a turn that stopped to end with one of {request.stop_ids}, got {sample.ids[-1]}"
    return None


class GuardedEnvironment:
    """An environment under time limits, its answers checked. It is not closed here: the episode stage closes what it made.

    Args:
        env: the environment.
        limits: of its methods.
        context: of the attempt.
        parts: of the episode.

    Attributes:
        clock: of the conversation, once it has begun: setting up and scoring are not part of it.
    """

    def __init__(self, env: Environment, limits: TimeLimits, context: Context, parts: PartClock):
        self._env = env
        self._limits = limits
        self._context = context
        self._parts = parts
        self._turn = 0
        self._tools: Sequence[ShownTool] = ()
        self.clock: ConversationClock | None = None

    async def reset(self, task: Task, key: tuple[int, int, int, int]) -> Opening:
        """See ``Environment``; raises ``EpisodeError`` only. Its tools are what is shown of them."""
        with self._parts.part("reset"):
            given = await self._asked(self._env.reset(task, key), "the environment's reset", self._limits.reset_s)
        opening = _sound("reset", checked_opening, given)
        if opening.on_invalid is None:
            given = msgspec.structs.replace(opening, on_invalid=task.extra.get("on_invalid"))
            opening = _sound("reset", checked_opening, given)
        self._tools = opening.tools
        return opening

    async def step(self, message: Message) -> Reply:
        """See ``Environment``; raises ``EpisodeError`` only. Calls of what is not there are answered in any case."""
        what = "the environment's step"
        with self._context.span("tool", turn=self._turn, calls=len(message.calls)):
            self._turn += 1
            whole = limit(what, None) if self.clock is None else self.clock.limit(what, None)
            reply = await guarded(self._timed(message, what), Status.ENVIRONMENT_ERROR, what, whole)
        return _sound("step", checked_reply, message, reply, self._tools)

    async def score(self) -> dict[str, float] | None:
        """See ``Environment``; raises ``EpisodeError`` only."""
        with self._parts.part("score"):
            parts = await self._asked(self._env.score(), "the environment's score", self._limits.score_s)
        return _sound("score", checked_score, parts)

    async def close(self) -> None:
        """Not for agents: does nothing."""

    async def _timed(self, message: Message, what: str) -> Reply:
        clock = StepClock(self._limits.step_s)
        with clock.scope, tool_context_with(permit=clock.permit):
            return await self._env.step(message)
        raise EpisodeError(Status.TIMED_OUT, limit(what, self._limits.step_s).late)

    async def _asked(self, work: Awaitable[T], what: str, limit_s: float | None) -> T:
        return await guarded(work, Status.ENVIRONMENT_ERROR, what, limit(what, limit_s))


def _sound(method: str, check: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The checked copy of an answer: what the environment gave is read nowhere else."""
    try:
        return check(*args, **kwargs)
    except AnswerError as error:
        raise EpisodeError(Status.ENVIRONMENT_ERROR, blanked(f"the environment's {method}: {error}")) from error


def _told(what: str, error: Exception) -> str:
    return f"{what} raised {type(error).__name__}: {' '.join(blanked(str(error)).split())[:300]}"
