"""The engine's spans in the run's trace: prefill, decode and weight swaps on tracks of their own."""

from flow.trace import Recorder


class EngineTrace:
    """Passes spans on once a recorder is attached; before that, and without one, they go nowhere."""

    def __init__(self) -> None:
        self._recorder: Recorder | None = None
        self._open: set[str] = set()

    def attach(self, recorder: Recorder | None) -> None:
        """Send spans that begin from now on to this recorder."""
        self._recorder = recorder

    def begin(self, track: str, name: str, ns: int) -> None:
        """Open a span."""
        if self._recorder is not None:
            self._open.add(track)
            self._recorder.begin(self._recorder.track(track), name, ns)

    def end(self, track: str, ns: int) -> None:
        """Close the span opened last on the track."""
        if self._recorder is not None and track in self._open:
            self._recorder.end(self._recorder.track(track), ns)
