"""What an engine tells the trace of a run: its steps, who sat in which slot, its rates. On the engine's thread alone.

A step of a small model takes less than a millisecond. A slice for each would cost more than it shows, so short steps of a kind
and size that follow on each other share one, which counts them. What a slice says is worked out on the writer's thread.
Counters are written a few times a second; while the engine has nothing to do it tells nothing, and afterwards that it was idle.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from stages.policy import Sample
from stages.roles import Role
from stages.rollout.statistics import EngineStatistics
from stages.rollout.steps import Job

_LONGEST_S = 0.01
"""Most that steps which share a slice take together."""
_GAP_S = 0.001
"""Most time between them: what the engine does on the host from one step to the next."""
_EVERY_S = 0.25
"""From one value of a counter to the next."""


@dataclass(slots=True)
class _Steps:
    """Steps of one kind and number of rows, one after another."""

    kind: Literal["prefill", "decode"]
    rows: int
    began_s: float
    ended_s: float
    steps: int
    tokens: int
    busy_s: float


class EngineTrace:
    """The track of an engine, with those of its slots and its counters.

    Args:
        name: of the track.
        figures: gives what the counters tell.

    Attributes:
        role: what else the engine does, as compiling, is told through it.
        on: whether anybody records.
    """

    def __init__(self, name: str, figures: Callable[[], EngineStatistics]) -> None:
        self.role = Role(name, self.hand_over)
        self.on = self.role.recorder is not None
        self._name, self._figures = name, figures
        self._run: _Steps | None = None
        self._marks: list[Any] = []
        self._stays: dict[int, list[Any]] = {}
        self._slots: dict[int, int] = {}
        self._counted_s = self._paused_s = time.monotonic()
        self._before: EngineStatistics | None = None
        self._told: dict[str, float] = {}

    def step(self, kind: Literal["prefill", "decode"], rows: int, began_s: float, ended_s: float, tokens: int) -> None:
        """The device made a step of so many rows, not all of which need have a token. Times of ``time.monotonic``."""
        run = self._run
        if (
            run
            and (run.kind, run.rows) == (kind, rows)
            and began_s - run.ended_s < _GAP_S
            and ended_s - run.began_s < _LONGEST_S
        ):
            run.ended_s = ended_s
            run.steps += 1
            run.tokens += tokens
            run.busy_s += ended_s - began_s
        else:
            self._close_run()
            self._run = _Steps(kind, rows, began_s, ended_s, 1, tokens, ended_s - began_s)
        if ended_s - self._counted_s > _EVERY_S:
            self.hand_over()
            self._count(ended_s)

    def stayed(self, job: Job, sample: Sample | None, ended_s: float) -> None:
        """A request has left its slot, if it had one; with a sample, or with nothing where it failed or was given up."""
        times = job.times
        if self.on and times.began_s is not None:
            marks = self._stays.get(times.slot)
            if marks is None:
                marks = self._stays[times.slot] = []
            marks += (times.began_s, (job, sample, ended_s), ended_s, None)

    def pause(self) -> None:
        """Nothing is left to do."""
        self.hand_over()
        self._paused_s = time.monotonic()

    def resume(self) -> None:
        """There is something again, or the engine is closed."""
        now_s = time.monotonic()
        if now_s - self._paused_s > _EVERY_S:
            self._count_to_rest(self._paused_s)
            self._counted_s = now_s

    def close(self) -> None:
        """The engine has ended, in whatever way."""
        if self.on:
            self.hand_over()
            self._count_to_rest(time.monotonic())

    def hand_over(self) -> None:
        """Give the recorder what happened so far."""
        recorder = self.role.recorder
        if recorder is None:
            return
        self._close_run()
        if self._marks:
            marks, self._marks = self._marks, []
            recorder.series(self.role.track, marks, _of_steps)
        stays, self._stays = self._stays, {}
        for slot, marks in stays.items():
            track = self._slots.get(slot)
            if track is None:
                track = self._slots[slot] = recorder.track(f"slot {slot}", self.role.track, rank=slot)
            recorder.series(track, marks, _of_a_stay)

    def _close_run(self) -> None:
        run, self._run = self._run, None
        if run is not None:
            self._marks += (run.began_s, run, run.ended_s, None)

    def _count_to_rest(self, at_s: float) -> None:
        """Tell what it came to, and that nothing more comes."""
        self._count(at_s)
        self._before = None
        self._count(at_s)

    def _count(self, at_s: float) -> None:
        """Tell what has changed. Rates are of the time since they were told before; without such a time they are 0."""
        figures, before, seconds = self._figures(), self._before, at_s - self._counted_s
        self._before, self._counted_s = figures, at_s
        rates = {"sampled": 0.0, "prefilled": 0.0}
        if before is not None and seconds > 0:
            rates["sampled"] = (figures.sampled_tokens - before.sampled_tokens) / seconds
            rates["prefilled"] = (figures.prefilled_tokens - before.prefilled_tokens) / seconds
        for what, rate in rates.items():
            self._tell(what, rate, "tokens/s", at_s)
        self._tell("slots in use", figures.slots_busy, "slots", at_s)
        self._tell("waiting", figures.waiting, "requests", at_s)
        self._tell("cache found", figures.kept_tokens + figures.shared_tokens, "tokens", at_s)
        self._tell("cache evicted", figures.evicted_tokens, "tokens", at_s)

    def _tell(self, what: str, value: float, unit: str, at_s: float) -> None:
        recorder = self.role.recorder
        if recorder is not None and self._told.get(what) != value:
            self._told[what] = value
            recorder.count(recorder.counter(f"{self._name} {what}", unit, self.role.track), value, int(at_s * 1e9))


def _of_steps(steps: _Steps) -> tuple[str, Sequence[int], Mapping[str, Any]]:
    args = {"rows": steps.rows, "steps": steps.steps, "tokens": steps.tokens, "busy_us": round(steps.busy_s * 1e6)}
    return steps.kind, (), args


def _of_a_stay(stay: tuple[Job, Sample | None, float]) -> tuple[str, Sequence[int], Mapping[str, Any]]:
    job, sample, ended_s = stay
    request, (queue_s, prefill_s, _) = job.request, job.times.spent(ended_s)
    args: dict[str, Any] = {"item": request.session, "turn": request.key[-1], "prompt": len(request.ids)}
    args |= {"queue_us": round(queue_s * 1e6), "prefill_us": round((prefill_s or 0.0) * 1e6)}
    if sample is not None:
        args |= {"cached": sample.num_cached, "sampled": len(sample.ids)}
    return "request", () if request.flow is None else (request.flow,), args
