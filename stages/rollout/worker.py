"""The engine's thread: take calls, give out slots, run one step, report what ended; and again.

It owns the schedule and the device. The event loop reaches it only through the mailbox; it reaches the event loop only through
``report``, once per round.
"""

import time
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any, Protocol

import msgspec

from stages.rollout.config import EngineConfig
from stages.rollout.device import Device
from stages.rollout.mailbox import Mailbox
from stages.rollout.schedule import Decode, ReadIn, Schedule

TRACK = "engine"
"""Name of the track the spans go to."""


class Trace(Protocol):
    """Where spans go: "prefill", "decode" and "weights", with times of ``time.monotonic_ns``."""

    def begin(self, track: str, name: str, ns: int) -> None:
        """A span starts."""
        ...

    def end(self, track: str, ns: int) -> None:
        """The newest open span ends."""
        ...


class EngineStatistics(msgspec.Struct, frozen=True):
    """Counters since the engine opened."""

    steps: int
    """Decode steps."""
    sampled_tokens: int
    """Tokens sampled, those of cancelled requests included."""
    prefilled_tokens: int
    """Context tokens read in."""
    slots_busy: int
    """Slots with a request, now."""
    waiting: int
    """Requests without a slot, now."""
    evictions: int
    """Idle sessions that lost their slot to another one."""
    compilations: int
    """Programs compiled; it does not grow after the engine has opened."""
    version: int
    """Weight version in force."""


class Load(msgspec.Struct, frozen=True, eq=False):
    """New parameters on their way, checked, in the device's order."""

    leaves: list[Any]
    version: int


class Worker:
    """State of the thread; ``run`` is its body."""

    def __init__(
        self,
        device: Device,
        config: EngineConfig,
        version: int,
        mailbox: Mailbox,
        report: Callable[[list[tuple[object, object]]], None],
        trace: Trace | None,
    ):
        self.schedule = Schedule(config.slots, config.context_length)
        self._device, self._config, self._version = device, config, version
        self._mailbox, self._report, self._trace = mailbox, report, trace
        self._ended: list[tuple[object, object]] = []
        self._steps = self._sampled = self._prefilled = self._held = 0

    def run(self) -> None:
        """Work until the mailbox is closed."""
        with self._span("compile"):
            self._device.open()
        self._report([(self, None)])
        idle = True
        while (calls := self._mailbox.take(wait=idle)) is not None:
            for call in calls:
                call()
            self.schedule.admit()
            idle = not self._step()
            if self._ended:
                self._report(self._ended)
                self._ended = []
        self._device.close()

    def statistics(self) -> EngineStatistics:
        """The counters. Also safe from another thread: each is read at once, though not all at one moment."""
        schedule = self.schedule
        return EngineStatistics(
            steps=self._steps,
            sampled_tokens=self._sampled,
            prefilled_tokens=self._prefilled,
            slots_busy=schedule.num_busy,
            waiting=len(schedule.waiting),
            evictions=schedule.evictions,
            compilations=self._device.compilations,
            version=self._version,
        )

    def load(self, load: Load) -> None:
        """Put new parameters in force: between two steps, so at a token boundary. A step back is refused, but for version 0.

        Version 0 begins a new line of versions: other weights altogether, as those of another run of the same program.

        What is cached was computed with the old ones, so all of it goes, and running requests are read in again: a token's
        log-probability is always that of its own version given the whole context.
        """
        if 0 < load.version < self._version:
            self._ended.append((load, _step_back(load.version, self._version)))
            return
        with self._span("weights"):
            self._device.load(load.leaves)
        self._version = load.version
        self.schedule.forget()
        self._ended.append((load, None))

    def _step(self) -> bool:
        """One step of either kind; False where there is nothing to do.

        Either kind costs the same however few slots take part. So context is read in first, as it lets more slots decode, but
        a step that is not full is held back for a while, in case more is to be read in soon.
        """
        reading = self.schedule.read_in(self._config.prefill_rows, self._config.prefill_chunk)
        decoding = self.schedule.decode()
        if reading is not None and (decoding is None or reading.lengths_R.all() or self._held == self._config.prefill_wait):
            self._held = 0
            self._read_in(reading)
        elif decoding is not None:
            self._held += reading is not None
            self._decode(decoding)
        return reading is not None or decoding is not None

    def _read_in(self, work: ReadIn) -> None:
        with self._span("prefill"):
            self._device.read_in(work)
        self.schedule.commit_read_in(work)
        self._prefilled += int(work.lengths_R.sum())

    def _decode(self, work: Decode) -> None:
        with self._span("decode"):
            ids_S, logprobs_S = self._device.decode(work)
        self._ended += self.schedule.commit_decode(work, ids_S, logprobs_S, self._version)
        self._steps += 1
        self._sampled += int(work.lengths_S.sum())

    @contextmanager
    def _span(self, name: str):
        if self._trace is None:
            yield
            return
        self._trace.begin(TRACK, name, time.monotonic_ns())
        try:
            yield
        finally:
            self._trace.end(TRACK, time.monotonic_ns())


def _step_back(asked: int, in_force: int) -> ValueError:
    return ValueError(
        f"expected a version of at least {in_force}, the one in force; got {asked}, in engine.load; "
        "versions never go back: publish the weights under a new version"
    )
