"""What bounded the main phase of a run, in words, for its report. What is found is ``flow.explain``'s."""

import msgspec

from flow.explain import explain
from flow.trace import TraceError, read_trace
from graphs.report.record import RunRecord
from graphs.verdict.names import SERVERS
from graphs.verdict.text import told

MOST_BYTES = 30_000_000
"""Of traces that are read for a report: more takes longer than somebody waits who has just ended a run."""


def verdict_of(record: RunRecord) -> str:
    """What ``headrace trace`` says of the main phase; where to have it said of a trace that is long; empty where there is none.

    Args:
        record: of the run.
    """
    files = list(record.folder.glob("*.pftrace"))
    if sum(file.stat().st_size for file in files) > MOST_BYTES:
        return f"The trace is long: headrace trace {record.folder} tells."
    try:
        verdict = explain(read_trace(record.folder), SERVERS)
    except (TraceError, OSError):
        return ""
    main = [graph for graph in verdict.graphs if graph.graph == record.main] or list(verdict.graphs[-1:])
    return told(msgspec.structs.replace(verdict, graphs=tuple(main[-1:]))) if main else ""
