"""Every compilation of the process, as JAX tells of it: a counter in the trace, and a slice for those that nobody announced.

All shapes are to be compiled before a run is busy, and then none: a step that compiles is a stall that looks like work. So the
listener is on for the whole run, and what compiles outside of ``roles.compiling`` gets a slice ``compile`` of its own, on the
track of the role that it held up, or on ``compile`` where it was nobody's.
"""

import threading
import time
from types import TracebackType
from typing import Self

from jax import monitoring

from flow.trace import Recorder
from stages.roles import current_role, is_compiling

_EVENT = "/jax/core/compile/backend_compile_duration"
TRACK = "compile"
"""Of compilations by no role, and of the counter's values."""
COUNTER = "compiled programs"


class Compilations:
    """Listens while it is entered.

    Args:
        recorder: of the run.

    Attributes:
        count: programs compiled since.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._telling = threading.Lock()
        self._lanes: list[tuple[int, int]] = []  # track, and until when it is taken
        self.count = 0

    def __enter__(self) -> Self:
        self._counter = self._recorder.counter(COUNTER, "programs")
        self._recorder.count(self._counter, 0, time.monotonic_ns())
        monitoring.register_event_duration_secs_listener(self._heard)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        monitoring.unregister_event_duration_listener(self._heard)

    def _heard(self, event: str, duration_secs: float, **about: str | int) -> None:
        """Called on the thread that compiled, when it has."""
        if event != _EVENT:
            return
        program = str(about.get("fun_name", ""))
        with self._telling:
            ended_ns = time.monotonic_ns()
            self.count += 1
            self._recorder.count(self._counter, self.count, ended_ns)
            if is_compiling():
                return
            began_ns, role = ended_ns - int(duration_secs * 1e9), current_role()
            if role is None:
                track = self._lane(began_ns, ended_ns)
                self._recorder.begin(track, "compile", began_ns, {"program": program})
                self._recorder.end(track, ended_ns)
            else:
                role.over("compile", began_ns, ended_ns, program=program)

    def _lane(self, began_ns: int, ended_ns: int) -> int:
        """A track that was free all the time: several threads compile at once."""
        free = next((at for at, (_, until_ns) in enumerate(self._lanes) if until_ns <= began_ns), len(self._lanes))
        if free == len(self._lanes):
            self._lanes.append((self._recorder.track(f"{TRACK} {free}" if free else TRACK), ended_ns))
        track, _ = self._lanes[free]
        self._lanes[free] = track, ended_ns
        return track
