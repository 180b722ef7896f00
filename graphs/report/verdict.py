"""What bounded the main phase of a run, in words, for its report. What is found is ``flow.explain``'s."""

from dataclasses import dataclass

import msgspec

from flow.explain import explain
from flow.trace import TraceError, read_trace
from graphs.report.record import RunRecord
from graphs.verdict.names import SERVERS
from graphs.verdict.text import told

MOST_BYTES = 30_000_000
"""Of traces that are read for a report: more takes longer than somebody waits who has just ended a run."""


@dataclass(frozen=True)
class Told:
    """A verdict for people.

    Attributes:
        lead: what bounded the phase.
        rest: all else that the trace tells; empty for nothing.
    """

    lead: str
    rest: str = ""


def verdict_of(record: RunRecord) -> Told | None:
    """What ``headrace trace`` says of the main phase, or where to have it said of a long trace; ``None`` without a trace.

    Args:
        record: of the run.
    """
    files = list(record.folder.glob("*.pftrace"))
    if sum(file.stat().st_size for file in files) > MOST_BYTES:
        return Told(f"The trace is long: headrace trace {record.folder} tells.")
    try:
        verdict = explain(read_trace(record.folder), SERVERS)
    except (TraceError, OSError):
        return None
    main = [graph for graph in verdict.graphs if graph.graph == record.main] or list(verdict.graphs)
    if not main:
        return None
    text = told(msgspec.structs.replace(verdict, graphs=tuple(main[-1:])))
    lead, _, rest = text[text.index("== ") :].partition("\n\n")
    return Told(lead, rest)
