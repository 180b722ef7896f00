"""Traces of a run in Perfetto's format: the recorder the engine talks to, the writer and the reader.

``_recorder`` says what may be recorded, ``_current`` to whom, ``_lanes`` gives overlapping work tracks of its own, ``_packets``
turns events into bytes, ``_perfetto`` brings them to the file, ``_reader`` reads them back, ``_files`` those of a run together;
``_lag`` measures the loop. Nothing here knows stages or edges.
"""

from ._current import current_recorder, recording
from ._files import read_trace, trace_file
from ._lag import LoopLag
from ._lanes import Lanes
from ._perfetto import PerfettoWriter
from ._reader import Count, Instant, Slice, Trace, TraceError, Track
from ._recorder import Argument, Recorder

__all__ = [
    "Argument",
    "Count",
    "Instant",
    "Lanes",
    "LoopLag",
    "PerfettoWriter",
    "Recorder",
    "Slice",
    "Trace",
    "TraceError",
    "Track",
    "current_recorder",
    "read_trace",
    "recording",
    "trace_file",
]
