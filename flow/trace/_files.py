"""The trace of a run that fills several files, of one start or of many, read as one. The format is for ``_reader``."""

from pathlib import Path

from ._assembly import Assembly
from ._parts import Part, missing_between, parts_of_run, trace_file
from ._reader import Trace, TraceError


def read_trace(path: Path | str) -> Trace:
    """The trace in a file, or that of a whole run. An incomplete last packet is left out and counted.

    Of several files the times are those of the first one's clock, what is on the same track in each is on one track, and a
    slice that goes on from one file into the next is one slice. Where files are gone, as the oldest but the first are once a
    trace outgrows its bound, there is a gap.

    Args:
        path: a file of ``PerfettoWriter``, or the folder of a run.

    Raises:
        OSError: it cannot be read.
        TraceError: a file holds no packet, uses a track before its declaration, or ends a slice that is not open; or there is
            none in the folder.
    """
    path = Path(path)
    if not path.is_dir():
        parts = [Part(0, 0, path)]
    elif not (parts := parts_of_run(path)):
        raise TraceError(
            f"expected the folder of a run, got one without {trace_file(path, 0).name}, in {path}; give the folder, or a file"
        )
    assembly = Assembly()
    before = Part(0, -1, path)
    for part in parts:
        if len(parts) > 1 and not part.path.stat().st_size:
            continue  # a run that was killed just as it began it
        assembly.read(part.path, part.attempt, missing_between(before, part, trace_file(path, 0)) if len(parts) > 1 else [])
        before = part
    return assembly.trace()
