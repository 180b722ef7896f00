"""``check_env``: tests any environment against its contract, without a model.

Plays whole episodes of random turns on a real loop, on a real clock. For stages there is ``flow.testing.check_stage``.
"""

import asyncio
import itertools
import random
import time
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, ParamSpec, TypeVar

import anyio

from stages.envs.answers import AnswerError, checked_opening, checked_reply, checked_score
from stages.envs.environment import Environment, Opening, Reply
from stages.envs.housed import Housed, MakeEnv
from stages.envs.left_over import held_now, left_over
from stages.envs.random_turns import random_turn
from stages.envs.shown_tool import ShownTool
from stages.records import Message, Task
from stages.tools.tool import Tool

P = ParamSpec("P")
T = TypeVar("T")
Says = Callable[[Sequence[Message], Sequence[Tool], random.Random, int], Message]
"""The conversation so far, the tools that are shown, chance, and the number of the turn -> the turn."""

_TRIES = 3
"""Episodes that must all block the loop before it is believed: a busy machine does it now and then."""
_MOST_AWAITS = 200
_LET_THROUGH = "let a cancel through"


def check_env(
    make: MakeEnv,
    tasks: Sequence[Task],
    *,
    says: Says | None = None,
    examples: int = 20,
    max_turns: int = 6,
    repeatable: bool = True,
    pooled: bool = False,
    within_s: float = 10.0,
    max_block_s: float = 0.05,
) -> None:
    """Test an environment against its contract.

    The clauses, in the order in which they are checked:

    * *returns*: every method returns in time.
    * *raises*: nothing, whatever a model says.
    * *opening*: reset gives at least one message, and tools whose names differ.
    * *replies*: a step answers every call of a tool that is shown once, under its own id, in messages of tools and users. A
      call of another may be left unanswered, also where no tool is shown: it is tried too. The reward of a turn is a finite
      number, or ``None``.
    * *over*: an episode that is over stays over: a further step ends it again, or raises.
    * *score*: finite numbers by name, or ``None``; also in the middle of an episode.
    * *blocks*: no method holds the loop for long.
    * *repeatable*: the same key and the same turns give the same.
    * *pooled*: on request, also in an environment that was used before.
    * *closes*: close returns in time and leaves no task, thread, process or open file; after a whole episode, after none, and
      after a reset alone.
    * *cancellation*: cancelled at any await of reset, step and score, they end with the cancel, and then it closes.

    Args:
        make: makes the environment.
        tasks: some that it should know.
        says: what is said; ``None`` for ``random_turn``. An environment that expects words of its own is reached further with
            some of them.
        examples: episodes that are played.
        max_turns: most turns of each.
        repeatable: ``False`` for an environment whose chance is its own.
        pooled: whether it may be reset again.
        within_s: most seconds of each method.
        max_block_s: most seconds for which it may hold the loop at a stretch.

    Raises:
        AssertionError: a clause does not hold. The text says which, the task, the key and the turns, expected, got, what to do.
        ValueError: there is no task.
    """
    if not tasks:
        raise ValueError("expected at least one task, got an empty list, with which every environment passes; name one")
    subject = _Subject(make, says or (lambda said, tools, rng, turn: random_turn(tools, rng, turn)), max_turns, within_s)
    cases = [_Case(tasks[n % len(tasks)], (0, n, 0, 0)) for n in range(examples)]
    subject.play(cases[0])  # what is set up once and stays is no leak
    slow: list[_Case] = []
    for case in cases:
        played = subject.closed(case, subject.whole)
        if played.longest_s > max_block_s:
            slow.append(case)
        if repeatable:
            case.compare("repeatable", subject.play(case), played, "draw every chance from the key that reset is given")
        if pooled:
            case.compare("pooled", subject.play(case, before=cases[0]), played, "reset everything in reset")
    for case in slow[:_TRIES]:
        _blocks(subject, case, max_block_s)
    subject.closed(cases[0], subject.untouched)
    subject.closed(cases[0], subject.opened)
    for case in cases[:3]:
        _cancelled_anywhere(subject, case)


@dataclass
class _Played:
    """What came of an episode."""

    opening: Opening | None = None
    replies: list[Reply] = field(default_factory=list)
    parts: dict[str, float] | None = None
    longest_s: float = 0.0


@dataclass
class _Case:
    """One example, and what was said in it so far."""

    task: Task
    key: tuple[int, int, int, int]
    turns: list[Message] = field(default_factory=list)

    def broken(self, clause: str, expected: str, got: str, remedy: str, cause: BaseException | None = None) -> NoReturn:
        turns = "\n               ".join(_short(turn) for turn in self.turns) or "none yet"
        raise AssertionError(
            f"the environment breaks its contract: {clause}  (task {self.task.id!r}, key {self.key})\n"
            f"     turns     {turns}\n     expected  {expected}\n     got       {got}\n     to do     {remedy}"
        ) from cause

    def sound(self, clause: str, remedy: str, check: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return check(*args, **kwargs)
        except AnswerError as error:
            expected, _, got = str(error).removeprefix("expected ").partition(", got ")
            self.broken(clause, expected, got, remedy, error)

    def compare(self, clause: str, again: _Played, played: _Played, remedy: str) -> None:
        for what in ("opening", "replies", "parts"):
            one, other = _shown(getattr(played, what)), _shown(getattr(again, what))
            if one != other:
                self.broken(clause, f"{what} as before: {one}", other, remedy)


@dataclass
class _Subject:
    """The environment under test."""

    make: MakeEnv
    says: Says
    max_turns: int
    within_s: float

    def play(self, case: _Case, before: _Case | None = None) -> _Played:
        """A whole episode, of an environment that is new, or that was used ``before``."""

        async def run() -> _Played:
            housed = Housed(self.make)
            env = await self.asked(case, housed.open(case.task), "making it")
            if before is not None:
                await self.whole(before, env)
            played = await self.whole(case, env)
            await self.asked(case, housed.close(), "close")
            return played

        return asyncio.run(run())

    def closed(self, case: _Case, use: Callable[[_Case, Environment], Awaitable[_Played]]) -> _Played:
        """Use an environment, close it, and look at what is left."""

        async def run() -> _Played:
            housed = Housed(self.make)
            env = await self.asked(case, housed.open(case.task), "making it")
            hold = _Hold()
            played = await use(case, env)
            played.longest_s = await hold.stop()
            await self.asked(case, housed.close(), "close")
            _no_task(case)
            return played

        before = held_now()
        played = asyncio.run(run())
        _nothing_left(case, left_over(before))
        return played

    async def untouched(self, case: _Case, env: Environment) -> _Played:
        """Nothing at all."""
        case.turns.clear()
        return _Played()

    async def opened(self, case: _Case, env: Environment) -> _Played:
        """A reset, and no more."""
        case.turns.clear()
        return _Played(await self.asked(case, env.reset(case.task, case.key), "reset"))

    async def whole(self, case: _Case, env: Environment) -> _Played:
        """An episode to its end, or to the last turn."""
        played = await self.opened(case, env)
        opening = case.sound("opening", "return an Opening with a user message", checked_opening, played.opening)
        played.opening = opening
        said, rng = list(opening.messages), random.Random(repr(case.key))
        for turn in range(self.max_turns):
            message = self.says(said, opening.tools, rng, turn)
            case.turns.append(message)
            given = await self.asked(case, env.step(message), "step")
            remedy = "answer every call once, under its own id, and give a turn a finite reward or None"
            reply = case.sound("replies", remedy, checked_reply, message, given, opening.tools)
            played.replies.append(reply)
            said += [message, *reply.messages]
            if reply.end is not None:
                await self._over(case, env, message, opening.tools)
                break
        parts = await self.asked(case, env.score(), "score")
        played.parts = case.sound("score", "return finite numbers by name, or None", checked_score, parts)
        return played

    async def _over(self, case: _Case, env: Environment, message: Message, tools: Sequence[ShownTool]) -> None:
        try:
            with anyio.fail_after(self.within_s):
                reply = checked_reply(message, await env.step(message), tools)
        except Exception:
            return
        if reply.end is None:
            case.broken("over", "the end again, or an error", "an answer, as if it went on", "keep that the episode is over")

    async def asked(self, case: _Case, work: Awaitable[T], what: str) -> T:
        """What a method gives, in time and without an error."""
        try:
            with anyio.fail_after(self.within_s):
                return await work
        except TimeoutError as error:
            remedy = "give what it waits for a limit of its own"
            case.broken("returns", f"{what} to return within {self.within_s:g} s", "nothing", remedy, error)
        except AssertionError:
            raise
        except Exception as error:
            remedy = "a model says anything: answer what cannot be understood" if what == "step" else "catch it there"
            case.broken("raises", f"no error of {what}", f"{type(error).__name__}: {error}", remedy, error)


class _Hold:
    """Measures how long the loop is held at a stretch, from now on."""

    _STEP_S = 0.001

    def __init__(self) -> None:
        self._longest_s, self._seen_s = 0.0, time.monotonic()
        self._task = asyncio.create_task(self._watch())

    async def stop(self) -> float:
        self._see()
        self._task.cancel()
        await asyncio.wait([self._task])
        return self._longest_s

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._STEP_S)
            self._see()

    def _see(self) -> None:
        now = time.monotonic()
        self._longest_s, self._seen_s = max(self._longest_s, now - self._seen_s - self._STEP_S), now


def _blocks(subject: _Subject, case: _Case, max_block_s: float) -> None:
    longest_s = min(subject.closed(case, subject.whole).longest_s for _ in range(_TRIES))
    if longest_s > max_block_s:
        case.broken(
            "blocks",
            f"the loop held for at most {max_block_s * 1e3:.0f} ms",
            f"{longest_s * 1e3:.0f} ms, in each of {_TRIES} episodes",
            "make the method a plain one of a CustomEnv, which runs in a thread, or await what takes long",
        )


def _cancelled_anywhere(subject: _Subject, case: _Case) -> None:
    for place in range(_MOST_AWAITS):
        before = held_now()
        finished = asyncio.run(_cancelled_at(subject, case, place))
        _nothing_left(case, left_over(before), f"cancelled at await {place}")
        if finished:
            return


async def _cancelled_at(subject: _Subject, case: _Case, place: int) -> bool:
    """Cancel an episode at one of its awaits, and close; whether it was over before."""
    housed = Housed(subject.make)
    env = await housed.open(case.task)
    asked = asyncio.Event()
    task = asyncio.create_task(_cut(subject.whole(case, env), place, asked))
    await asyncio.wait([task])
    if asked.is_set() and not task.cancelled() and task.exception() is None:
        case.broken("cancellation", f"the cancel at await {place} to go on", "an answer, as if there were none", _LET_THROUGH)
    if not task.cancelled() and task.exception() is not None:
        case.broken("cancellation", f"the cancel at await {place} to go on", f"{task.exception()!r}", _LET_THROUGH)
    await subject.asked(case, housed.close(), f"close, after a cancel at await {place},")
    _no_task(case)
    return not task.cancelled()


@types.coroutine
def _cut(work: Coroutine[Any, Any, T], place: int, asked: asyncio.Event) -> Generator[Any, Any, T]:
    """Await work, and cancel the running task while it waits for the ``place``-th time, which is told to ``asked``."""
    task = asyncio.current_task()
    assert task is not None
    sent: Any = None
    error: BaseException | None = None
    for awaits in itertools.count():
        try:
            waited = work.send(sent) if error is None else work.throw(error)
        except StopIteration as done:
            return done.value
        if awaits == place:
            asyncio.get_running_loop().call_soon(task.cancel)
            asked.set()
        sent = error = None
        try:
            sent = yield waited
        except BaseException as thrown:
            error = thrown
    raise AssertionError


def _no_task(case: _Case) -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        case.broken("closes", "no task left", ", ".join(map(repr, others)), "cancel and await them in close")


def _nothing_left(case: _Case, left: str | None, when: str = "closed") -> None:
    if left is not None:
        case.broken("closes", f"nothing left of it once {when}", left, "free it in close, also where reset was cut short")


def _shown(value: Any) -> str:
    if isinstance(value, Opening):
        return f"{value.messages}, tools {[tool.name for tool in value.tools]}"
    return repr(value)


def _short(message: Message) -> str:
    text = repr(message.content) + (f", calls {list(message.calls)}" if message.calls else "")
    return text if len(text) <= 160 else f"{text[:157]}..."
