"""Traces of a run in Perfetto's format: the recorder the engine talks to, the writer and the reader.

``_recorder`` says what may be recorded, ``_current`` to whom, ``_lanes`` gives overlapping work tracks of its own, ``_packets``
and ``_wire`` turn events into bytes, ``_perfetto`` brings them to the files of ``_parts``; ``_files`` reads those of a run
together, with ``_assembly`` and ``_details``, into what ``_reader`` declares; ``_lag`` measures the loop. Nothing here knows
stages or edges.
"""

from ._current import current_recorder, recording
from ._files import read_trace
from ._lag import LoopLag
from ._lanes import Lanes
from ._parts import trace_file
from ._perfetto import PerfettoWriter
from ._reader import OPEN, Count, Gap, Instant, Slice, Spans, Trace, TraceError, Track, Values
from ._recorder import Argument, Recorder

__all__ = [
    "OPEN",
    "Argument",
    "Count",
    "Gap",
    "Instant",
    "Lanes",
    "LoopLag",
    "PerfettoWriter",
    "Recorder",
    "Slice",
    "Spans",
    "Trace",
    "TraceError",
    "Track",
    "Values",
    "current_recorder",
    "read_trace",
    "recording",
    "trace_file",
]
