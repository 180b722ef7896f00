"""The saving of one run: takes the moment on the loop, has the rest written on a thread, and puts it back when a run goes on.

The moment and the states are taken in one step of the loop, right after a sink has completed its own; what is too large for
that, the sink hands over before it begins the next. So all of a commit belongs to one instant, and nothing waits for the disk
but the commit after it.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from ._core.item import Item
from ._core.moment import Moment, capture, restore
from ._core.state import State
from ._errors import BuildError, CannotResume, Fault, NotResumable
from ._limits import Processes
from ._plan import Plan
from ._workers.hands import Crew, Hands
from .saving._commits import Commit, Draft
from .saving._declared import Resumable, Saves, check_resumable, is_sequence
from .saving._image import Ports, blocks, read_moment
from .saving._outline import differences, outline
from .saving._saving import Saving

_LOG = logging.getLogger("headrace")


class Keeping:
    """Saves and restores one run.

    Args:
        state: of the run.
        saving: what the program wants.

    Attributes:
        skipped: by source that is a sequence, how many of its items were drawn.
        failure: why the latest commit could not be made; ``None`` where it was.

    Raises:
        BuildError: rule B7: something of the graph cannot be saved. All of it at once.
    """

    def __init__(self, state: State, saving: Saving) -> None:
        self._state, self._saving = state, saving
        self._spec, self._commits = state.plan.spec, saving.commits
        self._resumables = resumables(state.plan, saving.beside)
        self._ports = Ports(self._spec, self._resumables, saving.commits.hooks)
        if faults := faults_of(state.plan, self._ports):
            raise BuildError(self._spec.name, faults)
        self._graph = outline(state.plan)
        self._sources = {name for name, node in self._spec.nodes.items() if node.kind == "source"}
        self._saved = {name: one for name, one in self._resumables.items() if isinstance(one, Saves)}
        self._triggers = _triggers(state.plan)
        self._latest: Commit | None = None
        self._steps: Mapping[str, int] = {}
        self._written: Mapping[str, bytes] = {}
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
            CannotResume: the commit is of another graph, or damaged.
        """
        commit = self._saving.resume
        if commit is None:
            return
        self._check(commit)
        moment, states = read_moment(commit.read_moment(), self._ports)
        for name, one in self._resumables.items():
            folder = commit.saved(name)
            if folder is not None and isinstance(one, Saves):
                await asyncio.to_thread(one.load, folder)
            if name not in states:
                raise CannotResume(f"{commit.folder}: expected a state of '{name}', got none; resume with what was saved")
            one.restore(self._ports.state(name).decode(states[name]))
        restore(self._state, moment)
        self._in_hand = moment.in_hand
        for name, node in self._state.nodes.items():
            if node.spec.kind == "source" and is_sequence(node.spec.stage):
                self.skipped[name] = sum(edge.put_count for edge in node.outputs) + (name in moment.in_hand)
        self._latest, self._steps, self._written = commit, self._now(), states

    def _check(self, commit: Commit) -> None:
        before = commit.manifest.graph
        if before is None:
            raise CannotResume(f"{commit.folder}: expected the moment of a graph, got a commit between two; start the next one")
        refused = [d for d in differences(before, self._graph) if d.verdict == "refuse"]
        if refused:
            listed = "; ".join(f"{d.path}: {d.before} before, {d.now} now" for d in refused)
            raise CannotResume(
                f"{commit.folder}: expected the graph that was saved, got one that differs in what its items depend on: "
                f"{listed}; go on with the graph as it was, or begin a new run"
            )

    def hired(self, crew: Crew) -> None:
        """The workers of a node are there: a source goes on with what it had in hand."""
        self._crews.append(crew)
        name = crew.node.spec.name
        crew.in_hand = self._in_hand.pop(name, None)
        if name in self._sources and name in self._resumables and crew.executor is not None:
            crew.keeps, crew.drawn_state = True, self._resumables[name].state()

    # --- saving ---

    async def after_step(self, hands: Hands) -> None:
        """A step of a sink is complete and published: commit, where one is due. Returns once the sink may go on.

        Cancelled, the commit is given up.
        """
        node = hands.node
        steps, collect = node.meter.steps, node.spec.collect
        assert collect is not None
        if node.spec.name not in self._triggers or (steps % self._commits.every and steps != collect.steps):
            return
        await self._commit(hands.call)

    async def end(self, *, last: bool) -> None:
        """The workers are gone, the stages still open: wait for what is being written.

        Args:
            last: commit once more first, as where the run was suspended.

        Raises:
            OSError: the last one could not be made.
        """
        try:
            if last:
                await self._commit(asyncio.to_thread)
                await self.idle()
                if self.failure is not None:
                    raise self.failure
        finally:
            await self.idle()
            if self._writer is not None:
                self._writer.shutdown()

    async def idle(self) -> None:
        """Wait until nothing is being written."""
        while self._under_way is not None:
            await asyncio.wait([self._under_way])

    async def _commit(self, call: Callable[..., Any]) -> None:
        """Take the moment now; then, once the commit before is written, what is large; then have it written."""
        draft = None
        try:
            draft = self._commits.begin()
            moment, states, steps = self._capture(), self._states(), self._now()
            about = dict(self._saving.about())
            writes = [one.save(draft.folder / name) for name, one in self._saved.items() if name not in self._triggers]
            await self.idle()
            for name in self._saved.keys() & self._triggers:
                writes.append(await self._of_sink(name, draft, call, steps, states))
        except BaseException as error:
            if draft is not None:
                self._commits.discard(draft)
            if not isinstance(error, Exception):
                raise
            self._failed(error)
            return
        pieces = blocks(moment, states, self._ports)
        self._write(partial(self._commits.write, draft, about, self._graph, pieces, writes), draft, steps, states)

    async def _of_sink(
        self, name: str, draft: Draft, call: Callable[..., Any], steps: Mapping[str, int], states: Mapping[str, bytes]
    ) -> Callable[[], None]:
        """What writes a sink as it is after its latest step. It may have been written in that very state already."""
        before, same = self._latest, self._steps.get(name) == steps[name] and self._written.get(name) == states[name]
        if before is not None and before.saved(name) is not None and same:
            return partial(self._commits.link, draft, before, name)
        return await call(self._saved[name].save, draft.folder / name)

    def _capture(self) -> Moment:
        return capture(self._state, {crew.node.spec.name: crew.in_hand for crew in self._crews if crew.in_hand is not None})

    def _states(self) -> dict[str, bytes]:
        """All states, written at once, since what gives one may go on changing it.

        That of a source which draws on a thread was taken there, after its latest draw.
        """
        drawn = {crew.node.spec.name: crew.drawn_state for crew in self._crews if crew.keeps}
        states = {name: drawn[name] if name in drawn else one.state() for name, one in self._resumables.items()}
        return {name: self._ports.state(name).encode(state) for name, state in states.items()}

    def _now(self) -> Mapping[str, int]:
        return {name: node.meter.steps for name, node in self._state.nodes.items()}

    def _write(self, write: Callable[[], Commit], draft: Draft, steps: Mapping[str, int], states: Mapping[str, bytes]) -> None:
        if not self._commits.on_thread:
            self._ended(draft, steps, states, write)
            return
        loop = asyncio.get_running_loop()
        if self._writer is None:
            self._writer = ThreadPoolExecutor(1, f"{self._spec.name} commits")
        under_way = self._under_way = loop.run_in_executor(self._writer, write)
        under_way.add_done_callback(lambda done: self._ended(draft, steps, states, done.result))

    def _ended(self, draft: Draft, steps: Mapping[str, int], states: Mapping[str, bytes], result: Callable[[], Commit]) -> None:
        self._under_way = None
        try:
            self._latest = result()
        except Exception as error:
            self._commits.discard(draft)
            self._failed(error)
        else:
            self._steps, self._written, self.failure = steps, states, None

    def _failed(self, error: Exception) -> None:
        self.failure = error
        before = "there is none" if self._latest is None else f"the latest good one is {self._latest.folder}"
        _LOG.warning("a commit could not be made, and the run goes on: %s; %s", error, before)
        if self._saving.on_failure is not None:
            self._saving.on_failure(error)


def resumables(plan: Plan, beside: Mapping[str, Resumable]) -> dict[str, Resumable]:
    """All that declares a state, by name: stages, owners of the loads of cells, and what stands beside the graph."""
    found: dict[str, Resumable] = {}
    for name, node in plan.spec.nodes.items():
        if isinstance(node.stage, Resumable):
            found[name] = node.stage
    for name, cell in plan.spec.cells.items():
        owner = getattr(cell.load, "__self__", cell.load)
        if isinstance(owner, Resumable):
            found[f"cell {name}"] = owner
    return found | {f"beside {name}": one for name, one in beside.items()}


def faults_of(plan: Plan, ports: Ports) -> list[Fault]:
    """Rule B7: what of a graph cannot be saved."""
    spec, found = plan.spec, [_fault(error) for error in ports.refusals]
    for name, node in spec.nodes.items():
        place = f"{spec.name}.{name}"
        if node.kind == "source":
            try:
                check_resumable(node.stage, place)
            except NotResumable as error:
                found.append(_fault(error, node.where))
        elif isinstance(node.stage, Resumable) and isinstance(node.placement, Processes):
            got = "one in processes, where its state cannot be seen"
            expected = "a stage with a state to be on the loop or on threads"
            found.append(Fault("B7", place, expected, got, node.where, "declare another placement"))
    saving = [name for name, node in spec.nodes.items() if node.collect is not None and isinstance(node.stage, Saves)]
    if len(saving) > 1:
        expected = "one sink that saves more than its state, since a commit belongs to a step of it"
        remedy = "train in two graphs, or have one sink hold both"
        found.append(Fault("B7", spec.name, expected, " and ".join(saving), spec.where, remedy))
    return found


def _fault(error: NotResumable, where: str = "") -> Fault:
    return Fault("B7", error.where, error.expected, error.got, where, error.remedy)


def _triggers(plan: Plan) -> frozenset[str]:
    """Sinks whose steps are followed by commits."""
    stepping = {name: node.stage for name, node in plan.spec.nodes.items() if node.collect is not None}
    saving = {name for name, stage in stepping.items() if isinstance(stage, Saves)}
    return frozenset(saving or stepping)
