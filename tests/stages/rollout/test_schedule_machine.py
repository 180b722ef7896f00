"""The engine's thread over a device of exact arithmetic, through all that callers can do, in any order.

The real ``Worker`` and ``Schedule`` run here; mailbox and device are played. A cell of the played device holds a digest of
everything that a real one's numbers depend on: the cells before it, its token, whether it was read in or decoded, and the
weights. What is sampled is a function of the digest alone. So a request that was given one wrong position, anybody's, samples
something else than the model of its session says, which knows of no rows, no slots and no steps.

Long because the device, the model and the script see one another's state at each step.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.policy import Sample, SampleRequest
from stages.rollout.config import EngineConfig
from stages.rollout.sampling import Drawn, request_key
from stages.rollout.steps import Copy, Decode, Job, Move, ReadIn
from stages.rollout.stops import Stops
from stages.rollout.worker import Load, Worker

VOCAB, LENGTH, STOP = 3, 16, 0
READ, DECODED = 0, 1
MOST_ROUNDS = 2000


class Cell(NamedTuple):
    """What a position of a row holds."""

    digest: int
    token: int
    kind: int
    version: int
    session: "Session | None"
    """Who decoded it."""


def digest_of(before: int, token: int, kind: int, version: int) -> int:
    return hash((before, token, kind, version))


class Session:
    """What a conversation should find cached: who computed each position, if nobody else were there."""

    def __init__(self, name: str):
        self.name = name
        self.context: list[int] = []
        self.own: list[tuple[int, int, int]] = []
        """Token, kind and version of each position."""
        self.jobs: list[Job] = []
        """Not ended, in order."""
        self.begun = self.released = False

    @property
    def is_live(self) -> bool:
        return self.begun and not (self.released and not self.jobs)

    def cut(self, tokens: list[int]) -> None:
        """Of the cache only what a context begins with is of use."""
        same = [mine[0] == token for mine, token in zip(self.own, tokens, strict=False)]
        del self.own[same.index(False) if False in same else len(same) :]

    def digest(self) -> int:
        value = 0
        for token, kind, version in self.own:
            value = digest_of(value, token, kind, version)
        return value


class Ask:
    """What the model knows of a request."""

    def __init__(self, number: int, session: Session, job: Job, version: int):
        self.number, self.session, self.job = number, session, job
        self.sampled: list[int] = []
        self.logprobs: list[float] = []
        self.versions: list[int] = []
        self.num_read = 0
        self.swapped = False
        self.came: int | None = None
        """How many had a slot before it."""

    def tokens(self) -> list[int]:
        return self.job.request.ids.tolist() + self.sampled


class World:
    """Device, mailbox and callers at once."""

    def __init__(
        self, draw: Callable, config: EngineConfig, prefill: tuple[int, ...], decode: tuple[int, ...], num_events: int
    ):
        self.draw, self.config, self.events_left = draw, config, num_events
        self.prefill_buckets, self.decode_buckets = prefill, decode
        self.cells: list[list[Cell | None]] = [[None] * LENGTH for _ in range(config.slots + config.kept)]
        self.compilations = self.version = self.lost = self.rounds = self.num_asked = self.num_placed = 0
        self.sessions: dict[str, Session] = {}
        self.left: list[Session] = []
        self.asks: dict[Job, Ask] = {}
        self.aborted: dict[Job, Ask] = {}
        """Ended already, not yet reported."""
        self.load_under_way: Load | None = None
        self.holding = False
        """A load waits for sessions to end."""
        self.parameters = self
        self.worker = Worker(self, config, 0, self, self.report, None)
        self.schedule = self.worker.schedule
        self.worker.run()

    # The device, and its parameters.

    def open(self) -> None:
        pass

    def close(self) -> None:
        pass

    def put_in_force(self, leaves: list) -> None:
        if self.config.swap == "episode":
            assert not any(session.is_live for session in self.all_sessions())
        self.holding = False
        if leaves == ["broken"]:
            raise ValueError("broken")
        self.version = self.load_under_way.version
        for ask in self.asks.values():
            ask.swapped = True
        if self.config.after_swap == "recompute":
            for session in self.all_sessions():
                session.own = []

    def move(self, move: Move) -> None:
        if not isinstance(move, Copy):
            self.cells[move.slot], self.cells[move.place] = self.cells[move.place], self.cells[move.slot]
            return
        taken = self.cells[move.source][: int(self.schedule.rows.cached_R[move.slot])]
        assert all(cell.kind == READ and cell.version == self.version for cell in taken)
        self.cells[move.slot] = list(self.cells[move.source])

    def read_in(self, work: ReadIn) -> None:
        self.look()
        assert len(work.slots_R) in self.prefill_buckets
        rows = [(s, at, n) for s, at, n in zip(work.slots_R, work.starts_R, work.lengths_R, strict=True) if n]
        first = min((ask for ask in self.in_slots().values() if self.is_behind(ask)), key=lambda ask: ask.came)
        assert self.slot_of(first) in [slot for slot, _, _ in rows], "the first to come reads in at each step"
        for row, (slot, start, num) in enumerate(rows):
            ask = self.in_slots()[slot]
            assert int(start) == self.schedule.rows.cached_R[slot] + self.read_by(rows[:row], slot)
            self.check_cells(slot, start)
            ask.num_read += int(num)
            for offset, token in enumerate(work.ids_RC[row, :num].tolist()):
                self.write(slot, start + offset, token, READ, None)

    def decode(self, work: Decode) -> Drawn:
        self.look()
        num = len(work.ids_N)
        assert num in self.decode_buckets
        assert np.isin(work.slots_N, np.arange(self.config.slots)).all()
        assert num < self.config.slots or work.slots_N.tolist() == list(range(num))
        drawn = Drawn(np.zeros(num, np.int32), np.zeros(num, np.float32), np.zeros(num, np.float32))
        taking_part = np.flatnonzero(work.lengths_N).tolist()
        assert len({*work.slots_N[taking_part].tolist()}) == len(taking_part)
        for row in taking_part:
            slot, token = int(work.slots_N[row]), int(work.ids_N[row])
            ask, at = self.in_slots()[slot], int(work.positions_N[row])
            assert ask.tokens()[at:] == [token]
            self.check_cells(slot, at)
            self.check_against_model(ask, slot, at)
            digest = self.write(slot, at, token, DECODED, ask.session)
            ask.session.own.append((token, DECODED, self.version))
            drawn.ids_S[row], drawn.logprobs_S[row] = digest % VOCAB, -(digest % 9973) / 1000
            ask.sampled.append(digest % VOCAB)
            ask.logprobs.append(float(drawn.logprobs_S[row]))
            ask.versions.append(self.version)
        return drawn

    def read_by(self, rows: list[tuple[int, int, int]], slot: int) -> int:
        return sum(int(num) for other, _, num in rows if other == slot)

    def write(self, slot: int, at: int, token: int, kind: int, session: Session | None) -> int:
        before = self.cells[slot][at - 1].digest if at else 0
        digest = digest_of(before, token, kind, self.version)
        self.cells[slot][at] = Cell(digest, token, kind, self.version, session)
        return digest

    # What must hold.

    def check_cells(self, slot: int, num: int) -> None:
        """All that a step attends to is the request's, computed in order, by reading in or by its own session."""
        ask, before = self.in_slots()[slot], 0
        for token, cell in zip(ask.tokens()[:num], self.cells[slot], strict=False):
            assert cell.token == token
            assert cell.digest == digest_of(before, token, cell.kind, cell.version)
            assert cell.session in (None, ask.session)
            assert cell.version == self.version or self.config.after_swap == "keep"
            before = cell.digest

    def check_against_model(self, ask: Ask, slot: int, at: int) -> None:
        session, tokens = ask.session, ask.tokens()[:at]
        found = self.cells[slot][at - 1].digest if at else 0
        session.cut(tokens)
        kept = list(session.own)
        session.own += [(token, READ, self.version) for token in tokens[len(kept) :]]
        if session.digest() != found and not ask.sampled and self.lost < self.schedule.rows.evictions:
            session.own = [(token, READ, self.version) for token in tokens]
            self.lost += 1
        if self.config.after_swap == "keep" and self.config.swap == "token" and self.version:
            return
        assert session.digest() == found, "a session samples what it would alone"

    def look(self) -> None:
        """After requests were admitted, before anything else happens."""
        placed = [ask for ask in self.in_slots().values() if ask.came is None]
        most = self.config.slots + self.config.kept
        for ask in sorted(placed, key=lambda ask: ask.number):
            assert ask.job is ask.session.jobs[0], "one request of a session at a time, in order"
            assert ask.session.begun or not self.holding
            ask.came, ask.session.begun = self.num_placed, True
            self.num_placed += 1
        if self.config.eviction == "never":
            assert self.schedule.rows.evictions == 0
            assert sum(session.is_live for session in self.all_sessions()) <= most
        if len(self.in_slots()) < self.config.slots:
            full = self.config.eviction == "never" and sum(session.is_live for session in self.all_sessions()) >= most
            for job in self.schedule.waiting:
                session = self.asks[job].session
                may_begin = session.begun or not (self.holding or full)
                first = next(one for one in self.all_sessions() if one.name == session.name and one.jobs).jobs[0]
                assert first is not job or not may_begin, "whoever may have an idle slot has it"
        assert self.schedule.num_live == sum(session.is_live for session in self.all_sessions())

    def all_sessions(self) -> list[Session]:
        return [*self.left, *self.sessions.values()]

    def in_slots(self) -> dict[int, Ask]:
        return {slot: self.asks[job] for slot, job in enumerate(self.schedule.jobs) if job is not None}

    def slot_of(self, ask: Ask) -> int:
        return self.schedule.jobs.index(ask.job)

    def is_behind(self, ask: Ask) -> bool:
        return int(self.schedule.rows.cached_R[self.slot_of(ask)]) < len(ask.tokens()) - 1

    # The mailbox and the callers.

    def take(self, wait: bool) -> list[Callable[[], None]] | None:
        self.rounds += 1
        assert self.rounds < MOST_ROUNDS, "somebody starves"
        if wait:
            self.look()
        if self.events_left:
            self.events_left -= 1
            events = [self.ask, self.ask, self.ask, self.cancel, self.abort, self.release, self.new_weights, self.nothing]
            return [self.draw(st.sampled_from(events))]
        if not wait:
            return []
        idle = [name for name, session in self.sessions.items() if not session.jobs]
        if not idle:
            assert not self.asks, "nobody who could make room is left"
            assert not self.aborted
            assert self.load_under_way is None
            assert self.schedule.num_busy == self.schedule.num_live == 0
            return None
        return [lambda: self.release(idle[0])]

    def nothing(self) -> None:
        pass

    def ask(self) -> None:
        name = self.draw(st.sampled_from("abcdef"))
        session = self.sessions.setdefault(name, Session(name))
        kept = session.context[: self.draw(st.sampled_from((LENGTH, LENGTH, LENGTH, 2, 5)))]
        ids = (kept + self.draw(st.lists(st.integers(0, 1), min_size=1, max_size=6)))[-LENGTH + 1 :]
        max_tokens = self.draw(st.integers(1, 4))
        request = SampleRequest(np.array(ids, np.int32), max_tokens, (STOP,), 1.0, (0, 0, 0, 0, 0), name)
        job = Job(request, request_key(request.key), Stops(request))
        self.asks[job] = Ask(self.num_asked, session, job, self.version)
        self.num_asked += 1
        session.jobs.append(job)
        self.schedule.submit(job)

    def cancel(self) -> None:
        if self.asks:
            job = self.draw(st.sampled_from(list(self.asks)))
            self.end(job)
            self.schedule.cancel(job)

    def abort(self) -> None:
        name = self.draw(st.sampled_from("abcdef"))
        for job in [job for job, ask in self.asks.items() if ask.session.name == name]:
            self.aborted[job] = self.end(job)
        self.worker.abort(name)

    def release(self, name: str | None = None) -> None:
        name = name or self.draw(st.sampled_from("abcdef"))
        if name in self.sessions:
            session = self.sessions.pop(name)
            session.released = True
            self.left.append(session)
        self.schedule.release(name)

    def new_weights(self) -> None:
        if self.load_under_way is not None:
            if self.draw(st.booleans()):
                self.worker.abandon(self.load_under_way)
                self.load_under_way, self.holding = None, False
            return
        leaves = ["broken"] if self.draw(st.integers(0, 3)) == 3 else []
        self.load_under_way = Load(leaves, self.version + 1)
        self.holding = self.config.swap == "episode"
        self.worker.load(self.load_under_way)

    def report(self, ended: list[tuple[object, object]]) -> None:
        for ticket, outcome in ended:
            if ticket is self.load_under_way and ticket is not None:
                assert isinstance(outcome, RuntimeError) == (ticket.leaves == ["broken"])
                self.load_under_way = None
            elif isinstance(ticket, Job):
                assert (outcome.stop_reason == "aborted") == (ticket in self.aborted)
                self.check_sample(self.aborted.pop(ticket, None) or self.end(ticket), outcome)

    def end(self, job: Job) -> Ask:
        """A request ends exactly once: a second time there is nothing to take out."""
        ask = self.asks.pop(job)
        ask.session.jobs.remove(job)
        ask.session.context = ask.tokens()
        # One that had a slot has thrown away what did not fit its context, even if it got no further.
        if job in self.schedule.jobs:
            ask.session.cut(ask.tokens()[:-1])
        return ask

    def check_sample(self, ask: Ask, sample: Sample) -> None:
        request = ask.job.request
        assert sample.ids.tolist() == ask.sampled
        assert sample.logprobs.tolist() == ask.logprobs
        assert sample.versions.tolist() == ask.versions
        assert 0 <= sample.num_cached < len(request.ids)
        if sample.stop_reason == "aborted":
            return
        assert (sample.stop_reason == "stop") == (ask.sampled[-1] == STOP)
        room = min(request.max_tokens, LENGTH - len(request.ids))
        assert sample.stop_reason == "stop" or len(sample.ids) == room
        assert len(sample.ids) <= room
        if not ask.swapped:
            assert sample.num_cached + ask.num_read == len(request.ids) - 1


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_whatever_callers_do_each_session_samples_what_it_would_alone_and_every_request_ends_once(data):
    """S11, S14, S82, S84, S85, S90: random requests, conversations, cancellations, aborts, releases and new weights, over all
    policies of eviction and of swapping, shelves and sizes of prefill steps.
    """
    slots = data.draw(st.integers(1, 3))
    rows = data.draw(st.integers(1, 4))
    config = EngineConfig(
        slots=slots,
        kept=data.draw(st.integers(0, 3)),
        eviction=data.draw(st.sampled_from(("oldest", "never"))),
        context_length=LENGTH,
        prefill_rows=rows,
        prefill_chunk=data.draw(st.integers(1, 4)),
        prefill_wait=data.draw(st.integers(0, 2)),
        swap=data.draw(st.sampled_from(("token", "episode"))),
        after_swap=data.draw(st.sampled_from(("recompute", "keep"))),
    )
    prefill, decode = (data.draw(st.sampled_from([(most,), tuple(sorted({1, most}))])) for most in (rows, slots))
    world = World(data.draw, config, prefill, decode, data.draw(st.integers(1, 60)))
    statistics = world.worker.statistics()
    assert (statistics.waiting, statistics.slots_busy, statistics.version) == (0, 0, world.version)
