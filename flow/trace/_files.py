"""The trace of a run that was started several times: a file for each start, read as one. The format is for ``_reader``."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from ._reader import Count, Instant, Slice, Trace, TraceError, Track, read_file

_NAME, _SUFFIX = "run", ".pftrace"
_MIX, _IDS = 0x9E3779B97F4A7C15, 2**64
"""Item numbers begin anew with each start; odd, so that no two starts share the ids of their arrows."""


def trace_file(folder: Path, attempt: int) -> Path:
    """The file of one start of a run: ``run.pftrace`` of the first, ``run.1.pftrace`` of the second, and so on."""
    return folder / (f"{_NAME}.{attempt}{_SUFFIX}" if attempt else f"{_NAME}{_SUFFIX}")


def read_trace(path: Path | str) -> Trace:
    """The trace in a file, or that of a whole run. An incomplete last packet is left out and counted.

    Of several files the times are those of the first one's clock, and what is on the same track in each is on one track.

    Args:
        path: a file of ``PerfettoWriter``, or the folder of a run.

    Raises:
        OSError: it cannot be read.
        TraceError: a file holds no packet, uses a track before its declaration, or ends a slice that is not open; or there is
            none in the folder.
    """
    path = Path(path)
    if not path.is_dir():
        return read_file(path)
    files = [file for file in path.glob(f"{_NAME}*{_SUFFIX}") if _number(file) is not None]
    if not files:
        raise TraceError(
            f"expected the folder of a run, got one without {_NAME}{_SUFFIX}, in {path}; give the folder, or a file"
        )
    return _together([read_file(file) for file in sorted(files, key=lambda file: _number(file) or 0)])


def _number(file: Path) -> int | None:
    """Of the start that a file is of; ``None`` for a file of something else."""
    number = file.name.removeprefix(_NAME).removesuffix(_SUFFIX).removeprefix(".")
    return 0 if file.name == f"{_NAME}{_SUFFIX}" else int(number) if number.isdecimal() else None


def _together(traces: Sequence[Trace]) -> Trace:
    tracks: dict[int, Track] = {}
    known: dict[tuple[object, ...], int] = {}
    slices: list[Slice] = []
    instants: list[Instant] = []
    counts: list[Count] = []
    for start, trace in enumerate(traces):
        later_ns, mix = trace.wall_offset_ns - traces[0].wall_offset_ns, start * _MIX % _IDS
        places = _placed(trace, tracks, known)
        for each in trace.slices:
            end_ns = None if each.end_ns is None else each.end_ns + later_ns
            flows = tuple((flow + mix) % _IDS for flow in each.flows)
            moved = {"track": places[each.track], "start_ns": each.start_ns + later_ns, "end_ns": end_ns, "flows": flows}
            slices.append(msgspec.structs.replace(each, **moved))
        for each in trace.instants:
            flows = tuple((flow + mix) % _IDS for flow in each.flows)
            moved = {"track": places[each.track], "at_ns": each.at_ns + later_ns, "flows": flows}
            instants.append(msgspec.structs.replace(each, **moved))
        for each in trace.counts:
            counts.append(msgspec.structs.replace(each, track=places[each.track], at_ns=each.at_ns + later_ns))
    torn = sum(trace.torn_bytes for trace in traces)
    return Trace(tracks, tuple(slices), tuple(instants), tuple(counts), traces[0].wall_offset_ns, torn)


def _placed(trace: Trace, tracks: dict[int, Track], known: dict[tuple[object, ...], int]) -> dict[int, int]:
    """Where each track of a trace goes among those of all, which get what they lack."""
    places: dict[int, int] = {}
    for number, track in trace.tracks.items():
        parent = None if track.parent is None else places[track.parent]
        key = (track.name, parent, track.kind)
        if key not in known:
            known[key] = len(known) + 1
            tracks[known[key]] = msgspec.structs.replace(track, number=known[key], parent=parent)
        places[number] = known[key]
    return places
