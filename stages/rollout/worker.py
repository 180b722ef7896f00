"""The engine's thread: take calls, give out slots, run one step, report what ended; and again.

It owns the schedule and the device. The event loop reaches it only through the mailbox; it reaches the event loop only through
``report``, once per round.
"""

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np

from stages.policy import Sample
from stages.rollout.config import EngineConfig
from stages.rollout.device import Device
from stages.rollout.mailbox import Mailbox
from stages.rollout.sampling import Drawn
from stages.rollout.schedule import Schedule
from stages.rollout.statistics import EngineStatistics
from stages.rollout.steps import Decode, Job, Outcome, ReadIn, Token
from stages.rollout.tracing import EngineTrace


class Load(msgspec.Struct, frozen=True, eq=False):
    """New parameters on their way, checked and placed, in the device's order; ``None`` keeps what is in force."""

    leaves: list[Any]
    version: int


class Scramble(msgspec.Struct, frozen=True, eq=False):
    """Leaves to put random numbers in place of; ``None`` for those to keep."""

    leaves: list[Any]


class Worker:
    """State of the thread; ``run`` is its body."""

    def __init__(
        self,
        device: Device,
        config: EngineConfig,
        version: int,
        mailbox: Mailbox,
        report: Callable[[list[tuple[object, object]]], None],
        name: str,
    ):
        self._device, self._config, self._version = device, config, version
        self._mailbox, self._report = mailbox, report
        self._trace = EngineTrace(name, self.statistics)
        self._ended: list[tuple[object, object]] = []
        self._load: Load | None = None
        self._steps = self._busy = self._prefilled = self._held = self._loaded_bytes = 0
        self._prefill_s = self._decode_s = 0.0
        self._reading: set[int] = set()
        """Slots whose request has not decoded yet."""
        self._heard: set[int] = set()
        """Slots whose newest request is wanted token by token."""
        self._held_back = False

    @functools.cached_property
    def schedule(self) -> Schedule:
        """Made when it is first needed: an engine that is only described takes no memory."""
        return Schedule(self._config)

    def run(self) -> None:
        """Work until the mailbox is closed."""
        try:
            self._work()
        finally:
            self._trace.close()

    def _work(self) -> None:
        with self._trace.role.span("open"):
            self._device.open()
        self.schedule.prefill_buckets = self._device.prefill_buckets
        self.schedule.decode_buckets = self._device.decode_buckets
        self._report([(self, None)])
        idle = True
        while (calls := self._take(idle)) is not None:
            idle = not self.round(calls)
        self._device.close()

    def round(self, calls: Sequence[Callable[[], None]]) -> bool:
        """Make what was posted, put weights in force, give out slots, make one step, and report what ended.

        Apart from ``run``, so that a simulation plays the very rounds of an engine: its device then notes what a step takes.

        Args:
            calls: of the mailbox, in order.

        Returns:
            Whether there was a step to make; never while steps are held back.
        """
        for call in calls:
            call()
        self._swap()
        self._admit()
        busy = not self._held_back and self._step()
        if self._ended:
            ended, self._ended = self._ended, []
            self._report(ended)
        return busy

    def statistics(self) -> EngineStatistics:
        """The counters. Also safe from another thread: each is read at once, though not all at one moment."""
        schedule = self.schedule
        return EngineStatistics(
            steps=self._steps,
            busy_slot_steps=self._busy,
            sampled_tokens=self._busy,
            prefilled_tokens=self._prefilled,
            kept_tokens=schedule.kept_tokens,
            shared_tokens=schedule.shared_tokens,
            slots_busy=schedule.num_busy,
            waiting=len(schedule.waiting),
            evictions=schedule.rows.evictions,
            evicted_tokens=schedule.rows.evicted_tokens,
            prefill_s=self._prefill_s,
            decode_s=self._decode_s,
            compilations=self._device.compilations,
            loaded_bytes=self._loaded_bytes,
            version=self._version,
        )

    def load(self, load: Load) -> None:
        """Put new parameters in force before the next step, or once the sessions that have begun are released.

        A step back is refused, but for version 0, which begins a new line of versions: other weights altogether, as those of
        another run of the same program.
        """
        if load.version != 0 and load.version < self._version:
            self._ended.append((load, _step_back(load.version, self._version)))
            return
        self._load = load
        self.schedule.hold_new_sessions = self._config.swap == "episode"

    def abandon(self, load: Load) -> None:
        """Give up parameters that are not yet in force; nothing of them is left."""
        if self._load is load:
            self._load = None
            self.schedule.hold_new_sessions = False

    def scramble(self, scramble: Scramble) -> None:
        """Put random numbers in force, see ``verify.py``."""
        self._device.parameters.scramble(scramble.leaves)
        self.schedule.rows.forget()
        self._ended.append((scramble, None))

    def hold(self, held_back: bool) -> None:
        """Make no steps, or make steps again."""
        self._held_back = held_back

    def abort(self, session: str) -> None:
        """End what the session is sampling with what there is."""
        self._end(self.schedule.abort(session))

    def cancel(self, job: Job) -> None:
        """Give a request up; see ``Schedule.cancel``."""
        if job in self.schedule.jobs:
            self._trace.stayed(job, None, time.monotonic())
        self.schedule.cancel(job)

    def _take(self, idle: bool) -> list[Callable[[], None]] | None:
        if not (idle and self._trace.on):
            return self._mailbox.take(wait=idle)
        self._trace.pause()
        calls = self._mailbox.take(wait=True)
        self._trace.resume()
        return calls

    def _admit(self) -> None:
        placed = self.schedule.admit()
        if placed:
            now_s = time.monotonic()
            for slot, job in placed:
                job.times.slot, job.times.began_s = slot, now_s
                self._reading.add(slot)
                (self._heard.discard if job.heard is None else self._heard.add)(slot)

    def _swap(self) -> None:
        """Put parameters that wait in force, if their time has come. They fail whole: then the old ones stay.

        Caches were computed with the old weights. Unless they are to be kept as they are, all of them go, and running requests
        are read in again: a token's log-probability is then that of its own version given the whole context.
        """
        load = self._load
        if load is None or (self._config.swap == "episode" and self.schedule.num_live):
            return
        self.abandon(load)
        try:
            with self._trace.role.span("weights", version=load.version):
                self._device.parameters.put_in_force(load.leaves)
        except Exception as error:
            self._ended.append((load, _not_loaded(load.version, self._version, error)))
            return
        self._version = load.version
        self._loaded_bytes += sum(leaf.nbytes for leaf in load.leaves if leaf is not None)
        if self._config.after_swap == "recompute":
            self.schedule.rows.forget()
        else:
            self.schedule.rows.stop_sharing()
        self._ended.append((load, None))

    def _step(self) -> bool:
        """One step of either kind; False where there is nothing to do.

        A step costs the same however few of its rows take part. So context is read in first, as it lets more slots decode, but
        a step that does not fill its size is held back for a while, in case more is to be read in soon.
        """
        reading = self.schedule.read_in()
        self._move()
        decoding = self.schedule.decode()
        full = reading is not None and reading.lengths_R.all()
        if reading is not None and (decoding is None or full or self._held == self._config.prefill_wait):
            self._held = 0
            self._read_in(reading)
        elif decoding is not None:
            self._held += reading is not None
            self._decode(decoding)
        return reading is not None or decoding is not None

    def _move(self) -> None:
        for move in self.schedule.take_moves():
            self._device.move(move)

    def _read_in(self, work: ReadIn) -> None:
        began_s = time.monotonic()
        with self._trace.role.annotation("prefill"):
            self._device.read_in(work)
        ended_s = time.monotonic()
        self.schedule.commit_read_in(work)
        tokens = int(work.lengths_R.sum())
        self._prefilled += tokens
        self._prefill_s += ended_s - began_s
        if self._trace.on:
            self._trace.step("prefill", len(work.lengths_R), began_s, ended_s, tokens)

    def _decode(self, work: Decode) -> None:
        began_s = time.monotonic()
        if self._reading:
            self._first_step(work, began_s)
        with self._trace.role.annotation("decode"):
            drawn = self._device.decode(work)
        ended_s = time.monotonic()
        tokens = int(work.lengths_N.sum())
        self._steps += 1
        self._busy += tokens
        self._decode_s += ended_s - began_s
        if self._trace.on:
            self._trace.step("decode", len(work.lengths_N), began_s, ended_s, tokens)
        ended = self.schedule.commit_decode(work, drawn, self._version)
        if self._heard:
            self._tell(work, drawn)
        self._end(ended)

    def _tell(self, work: Decode, drawn: Drawn) -> None:
        """Hand new tokens to those who want them one by one, of replies that go on."""
        for row in np.flatnonzero(work.lengths_N).tolist():
            job = self.schedule.jobs[slot] if (slot := int(work.slots_N[row])) in self._heard else None
            if job is not None and job.heard is not None:
                token = Token(int(drawn.ids_S[row]), float(drawn.logprobs_S[row]), self._version)
                self._ended.append((job, token))

    def _first_step(self, work: Decode, now_s: float) -> None:
        for slot in work.slots_N[np.flatnonzero(work.lengths_N)].tolist():
            if slot in self._reading:
                self._reading.discard(slot)
                self.schedule.jobs[slot].times.decoded_s = now_s

    def _end(self, outcomes: list[Outcome]) -> None:
        """Requests are over: what they came to, with the time it took."""
        if not outcomes:
            return
        now_s = time.monotonic()
        for job, outcome in outcomes:
            sample = outcome if isinstance(outcome, Sample) else None
            self._trace.stayed(job, sample, now_s)
            self._ended.append((job, outcome if sample is None else _timed(job, sample, now_s)))


def _timed(job: Job, sample: Sample, now_s: float) -> Sample:
    queue_s, prefill_s, decode_s = job.times.spent(now_s)
    return msgspec.structs.replace(sample, queue_s=queue_s, prefill_s=prefill_s, decode_s=decode_s)


def _not_loaded(asked: int, in_force: int, error: Exception) -> RuntimeError:
    failure = RuntimeError(
        f"expected parameters that can be copied to the engine's devices; got {type(error).__name__}: {error}; in engine.load "
        f"of version {asked}; version {in_force} stays in force; keep published parameters undonated, then load again"
    )
    failure.__cause__ = error
    return failure


def _step_back(asked: int, in_force: int) -> ValueError:
    return ValueError(
        f"expected a version of at least {in_force}, the one in force; got {asked}, in engine.load; "
        "versions never go back: publish the weights under a new version"
    )
