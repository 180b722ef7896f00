"""The saving of one run: takes the moment on the loop, has the rest written on a thread, and puts it back when a run goes on.

The moment and the states are taken in one step of the loop, right after a sink has completed its own; what is too large for
that, the sink hands over before it begins the next. So all of a commit belongs to one instant, and nothing waits for the disk
but the commit after it.
"""

import asyncio
import gc
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from ._check_saving import faults_of, resumables, triggers
from ._core.item import Item
from ._core.moment import Moment, capture, restore
from ._core.state import State
from ._errors import BuildError, CannotResume, CommitFailed
from ._recalling import NodeNotes, StepNotes, forgive, notes_of
from ._workers.hands import Crew, Hands
from .saving._commit import Commit, complete
from .saving._commits import Draft
from .saving._declared import Digested, Resumable, Saves, is_sequence
from .saving._image import Ports, blocks, read_moment
from .saving._outline import differences, outline
from .saving._points import reach
from .saving._records import Digest
from .saving._renamed import outline_renamed, renamed
from .saving._saving import Saving
from .trace import Recorder

_LOG = logging.getLogger("headrace")


class Keeping:
    """Saves and restores one run.

    Args:
        state: of the run.
        saving: what the program wants.
        fail: ends the run with an error.
        recorder: where the writing of commits is recorded; ``None`` for nowhere.

    Attributes:
        skipped: by source that is a sequence, how many of its items were drawn.
        failure: why the latest commit could not be made; ``None`` where it was.

    Raises:
        BuildError: rule B7: something of the graph cannot be saved. All of it at once.
    """

    def __init__(
        self, state: State, saving: Saving, fail: Callable[[BaseException], None], recorder: Recorder | None = None
    ) -> None:
        self._recorder = recorder
        self._state, self._saving, self._fail = state, saving, fail
        self._spec, self._commits = state.plan.spec, saving.commits
        self._resumables = resumables(state.plan, saving.beside)
        self._ports = Ports(self._spec, self._resumables, saving.commits.hooks)
        if faults := faults_of(state.plan, self._ports, saving.beside):
            raise BuildError(self._spec.name, faults)
        self._graph, self._journal = outline(state.plan), saving.journal
        self._notes: Mapping[str, NodeNotes | StepNotes] = {}
        if self._journal is not None:
            self._notes = notes_of(state, self._journal, self._ports, resumed=saving.resume is not None)
        self._saved = {name: one for name, one in self._resumables.items() if isinstance(one, Saves)}
        self._triggers = triggers(state.plan)
        self._latest: Commit | None = None
        self._steps: Mapping[str, int] = {}
        self._kept: Mapping[str, bytes] = {}
        self._writer: ThreadPoolExecutor | None = None
        self._under_way: asyncio.Future[Commit] | None = None
        self._crews: list[Crew] = []
        self._in_hand: dict[str, Item] = {}
        self.skipped: dict[str, int] = {}
        self.failure: Exception | None = None

    # --- going on ---

    async def restore(self) -> None:
        """Put everything where the commit says that it was; stages are open, and no worker is at work.

        Raises:
            CannotResume: the commit is of another graph, or damaged, or somebody cannot take over what is in it.
            FileNotFoundError: the commit was just removed.
        """
        commit = self._saving.resume
        if commit is None:
            return
        reach("resume.begin")
        with commit.reading():
            content, names = commit.read_moment(), self._names
            before = outline_renamed(commit.manifest.graph or {}, names)
            found = [d for d in differences(before, self._graph) if d.verdict == "refuse"]
            self._refuse(commit, [f"{d.path} was {_told(d.before)} and is {_told(d.now)}" for d in found])
            moment, states = read_moment(content, self._ports, names)
            saved = renamed({name: commit.saved(name) for name in commit.manifest.saved}, names)
            self._refuse(commit, [*self._missing(before, moment, states, saved)])
            faults: list[str] = []
            for name, one in self._resumables.items():
                faults += await self._restore(name, one, saved.get(name), states.get(name))
            self._refuse(commit, faults)
        reach("resume.states")
        restore(self._state, moment)
        self._in_hand = moment.in_hand
        self._latest, self._steps, self._kept = commit, self._now(), {} if names else states
        reach("resume.restored")

    @property
    def _names(self) -> dict[str, str]:
        """Names of now by those of before; of cells also those of their states."""
        names = dict(self._saving.renamed)
        return names | {f"cell {before}": f"cell {now}" for before, now in names.items()}

    def _missing(
        self, graph: Mapping[str, Any], moment: Moment, states: Mapping[str, bytes], saved: Mapping[str, Path | None]
    ) -> Iterator[str]:
        """What of a commit and of the run that goes on from it has no counterpart in the other, and is not migrated."""
        here, migrated = self._resumables, self._saving.migrate
        new = [name for name in here if name not in states and name not in migrated]
        yield from (f"'{name}' declares a state, and none was saved" for name in new)
        gone = [name for name in states if name not in here and name not in migrated]
        yield from (f"a state of '{name}' was saved, which declares none now" for name in gone)
        more = [name for name in self._saved if name not in saved and name not in migrated]
        yield from (f"'{name}' saves more than its state, and did not" for name in more)
        less = [name for name in saved if name not in self._saved and name not in migrated]
        yield from (f"'{name}' saved more than its state, and takes none of it over now" for name in less)
        for name, node in self._state.nodes.items():
            before, now = _steps_of(graph, name), _steps_of(self._graph, name)
            if name in moment.complete and before is not None and (now is None or now > before):
                yield f"'{name}' had come to its end after {moment.meters[name].steps} steps, and is to take more"
            if node.spec.kind == "source" and is_sequence(node.spec.stage):
                drawn = sum(moment.edges[edge.name].put_count for edge in node.outputs) + (name in moment.in_hand)
                self.skipped[name] = drawn
                if drawn > len(node.spec.stage):
                    yield f"'{name}' had given {drawn} items, and has {len(node.spec.stage)}"

    async def _restore(self, name: str, one: Resumable, folder: Path | None, state: bytes | None) -> list[str]:
        """Have one take over what it saved; gives what was wrong with that."""
        try:
            if (migrate := self._saving.migrate.get(name)) is not None:
                state = msgspec.msgpack.encode(migrate(None if state is None else msgspec.msgpack.decode(state)))
            assert state is not None, "what is missing was refused"
            decoded = self._ports.state(name).decode(state)
            if folder is not None and isinstance(one, Saves):
                await asyncio.to_thread(one.load, folder)
            one.restore(decoded)
        except Exception as error:
            _LOG.debug("'%s' could not take over what it saved", name, exc_info=error)
            return [f"'{name}' cannot take over what it saved ({type(error).__name__}: {error})"]
        return []

    def _refuse(self, commit: Commit, faults: Sequence[str]) -> None:
        if faults:
            raise CannotResume(
                f"{commit.folder}: expected the graph '{self._spec.name}' as it was saved, got one that differs in what a run "
                f"depends on: {'; '.join(faults)}; go on with the graph as it was, or begin a new run"
            )

    def hired(self, crew: Crew) -> None:
        """The workers of a node are there: a source goes on with what it had in hand."""
        self._crews.append(crew)
        crew.notes = self._notes.get(crew.node.spec.name)
        name = crew.node.spec.name
        crew.in_hand = self._in_hand.pop(name, None)
        if crew.node.spec.kind == "source" and name in self._resumables and crew.executor is not None:
            crew.keeps = partial(self._state_of, name)
            crew.drawn_state = crew.keeps()

    # --- saving ---

    async def after_step(self, hands: Hands) -> None:
        """A step of a sink is complete and published: commit, where one is due. Returns once the sink may go on.

        Cancelled, the commit is given up.

        Raises:
            Exception: it can never be made, see ``Saving``.
        """
        node = hands.node
        steps, collect = node.meter.steps, node.spec.collect
        assert collect is not None
        await self._digest(hands)
        if hands.cancelled or node.spec.name not in self._triggers or (steps % self._commits.every and steps != collect.steps):
            return
        hands.lane.work_on([], {"call": "commit"}, "its commit")
        await self._commit(hands.call)

    async def _digest(self, hands: Hands) -> None:
        """Note what a sink is like after its step, where all is recorded."""
        journal, name, stage = self._saving.journal, hands.node.spec.name, hands.node.spec.stage
        if journal is not None and journal.record and isinstance(stage, Digested):
            digest: str = await hands.call(stage.digest)
            journal.append(Digest(self._spec.name, name, hands.node.meter.steps, digest))

    async def end(self, *, suspended: bool) -> None:
        """The workers are gone without an error, the stages still open: commit what no commit holds yet.

        Args:
            suspended: whether there is something to go on with; else only what came after the latest commit counts.

        Raises:
            CommitFailed: the disk refuses it.
            Exception: it can never be made, see ``Saving``.
        """
        await self._idle()
        behind = any(self._state.nodes[name].meter.steps > self._steps.get(name, 0) for name in self._triggers)
        if suspended or behind or self.failure is not None:
            await self._commit(asyncio.to_thread)
            await self._idle()
            if self.failure is not None:
                raise CommitFailed(
                    f"expected a commit at the end of graph '{self._spec.name}', got '{self.failure}'; {self._before()}. Make "
                    f"it possible to write in {self._commits.folder}, and go on from there"
                ) from self.failure

    async def close(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Wait for what is being written, however the run ended."""
        if self._journal is not None and isinstance(error, Exception):
            forgive(self._journal, self._spec.name)
        try:
            await self._idle()
        finally:
            if self._writer is not None:
                self._writer.shutdown(wait=self._under_way is None)

    async def _idle(self) -> None:
        """Wait until nothing is being written."""
        while self._under_way is not None:
            await asyncio.wait([self._under_way])

    async def _commit(self, call: Callable[..., Any]) -> None:
        """Take the moment now; then, once the commit before is written, what is large; then have it written."""
        draft = None
        try:
            draft = self._commits.begin()
            moment, states, steps = self._capture(), self._states(), self._now()
            if self._journal is not None:
                self._journal.cut(draft.number)
            about = dict(self._saving.about())
            writes = [one.save(draft.folder / name) for name, one in self._saved.items() if name not in self._triggers]
            reach("commit.taken")
            await self._idle()
            for name in self._saved.keys() & self._triggers:
                writes.append(await self._of_sink(name, draft, call, steps, states))
        except BaseException as error:
            if draft is not None:
                self._commits.discard(draft)
            if not isinstance(error, OSError):
                raise
            self._failed(error)
            return
        pieces = blocks(moment, states, self._ports)
        self._mark(draft.number)
        self._write(partial(self._put, draft, about, pieces, writes), steps, states)

    def _put(
        self, draft: Draft, about: Mapping[str, Any], pieces: Iterator[bytes], writes: Sequence[Callable[[], None]]
    ) -> Commit:
        commit = self._commits.write(draft, about, self._graph, pieces, writes)
        if self._journal is not None:
            self._journal.forget(min((kept.number for kept in complete(self._commits.folder)), default=draft.number))
        return commit

    async def _of_sink(
        self, name: str, draft: Draft, call: Callable[..., Any], steps: Mapping[str, int], states: Mapping[str, bytes]
    ) -> Callable[[], None]:
        """What writes a sink as it is after its latest step. It may have been written in that very state already."""
        before, same = self._latest, self._steps.get(name) == steps[name] and self._kept.get(name) == states[name]
        folder = before.saved(name) if before is not None and same else None
        if before is not None and folder is not None and folder.is_dir():
            return partial(self._commits.link, draft, before, name)
        return await call(self._saved[name].save, draft.folder / name)

    def _capture(self) -> Moment:
        """Take the moment. Thousands of objects at once would set off collections of garbage, which take far longer than it."""
        collects = gc.isenabled()
        gc.disable()
        try:
            return self._taken()
        finally:
            if collects:
                gc.enable()

    def _taken(self) -> Moment:
        return capture(self._state, {crew.node.spec.name: crew.in_hand for crew in self._crews if crew.in_hand is not None})

    def _states(self) -> dict[str, bytes]:
        """All states, written at once, since what gives one may go on changing it.

        That of a source which draws on a thread was taken there, after its latest draw.
        """
        drawn = {crew.node.spec.name: crew.drawn_state for crew in self._crews if crew.keeps is not None}
        return {name: drawn[name] if name in drawn else self._state_of(name) for name in self._resumables}

    def _state_of(self, name: str) -> bytes:
        return self._ports.state(name).encode(self._resumables[name].state())

    def _now(self) -> Mapping[str, int]:
        return {name: node.meter.steps for name, node in self._state.nodes.items()}

    def _write(self, write: Callable[[], Commit], steps: Mapping[str, int], states: Mapping[str, bytes]) -> None:
        if self._writer is None:
            self._writer = ThreadPoolExecutor(1, f"{self._spec.name} commits")
        self._under_way = asyncio.get_running_loop().run_in_executor(self._writer, write)
        self._under_way.add_done_callback(lambda done: self._written(done, steps, states))

    def _written(self, done: "asyncio.Future[Commit]", steps: Mapping[str, int], states: Mapping[str, bytes]) -> None:
        self._under_way = None
        self._mark(None)
        try:
            self._latest = done.result()
        except OSError as error:
            self._failed(error)
        except Exception as error:
            self.failure = error
            self._fail(error)
        else:
            self._steps, self._kept, self.failure = steps, states, None

    def _mark(self, begun: int | None) -> None:
        """Record that the writing of a commit begins, or ends, on a track of its own: one is written at a time."""
        if self._recorder is None:
            return
        track, now = self._recorder.track(f"{self._spec.name} commits"), int(asyncio.get_running_loop().time() * 1e9)
        if begun is None:
            self._recorder.end(track, now)
        else:
            self._recorder.begin(track, "commit", now, {"number": begun})

    def _failed(self, error: Exception) -> None:
        """Tell of a commit that the disk refused; the run goes on."""
        self.failure = error
        _LOG.warning("a commit could not be made, and the run goes on: %s; %s", error, self._before())
        if self._saving.on_failure is not None:
            try:
                self._saving.on_failure(error)
            except Exception as raised:
                self._fail(raised)

    def _before(self) -> str:
        there = self._latest is not None and self._latest.folder.is_dir()
        return f"the latest good one is {self._latest.folder}" if there and self._latest else "there is no good one before it"


def _told(value: Any) -> str:
    return "not there" if value is None else str(value)


def _steps_of(graph: Mapping[str, Any] | None, name: str) -> int | None:
    """How many steps a node is asked for, by a graph as data; ``None`` for any number."""
    return None if graph is None else graph["nodes"][name]["steps"]
