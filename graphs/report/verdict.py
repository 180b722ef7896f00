"""What bounded the main phase of a run, in words, for its report. What is found is ``flow.explain``'s."""

from dataclasses import dataclass

import msgspec

from flow.explain import explain
from flow.trace import TraceError, read_trace
from graphs.report.record import RunRecord
from graphs.verdict.compared import longest
from graphs.verdict.names import SERVERS
from graphs.verdict.text import told, warnings, wrapped


@dataclass(frozen=True)
class Told:
    """A verdict for people.

    Attributes:
        lead: what bounded the phase.
        rest: all else that the trace tells; empty for nothing.
    """

    lead: str
    rest: str = ""


def verdict_of(record: RunRecord, most_bytes: int | None = None) -> Told | None:
    """What ``headrace trace`` says of the main phase, or where to have it said; ``None`` without a trace that can be read.

    Args:
        record: of the run.
        most_bytes: of a trace that is read, which takes a second for some 3 MB; ``None`` for any.
    """
    size = sum(file.stat().st_size for file in record.folder.glob("*.pftrace"))
    if most_bytes is not None and size > most_bytes:
        run = record.folder.name
        where = f"headrace trace {run} tells, and headrace report {run} puts it here"
        return Told(f"The trace, of {size / 1e6:,.0f} MB, is not read yet: {where}.")
    try:
        verdict = explain(read_trace(record.folder), SERVERS)
    except (TraceError, OSError):
        return None
    executions = longest(verdict)
    main = [graph for graph in executions if graph.graph == record.main] or executions
    if not main:
        return None
    text = told(msgspec.structs.replace(verdict, graphs=tuple(main[-1:])))
    lead, _, rest = text[text.index("== ") :].partition("\n\n")
    warned = [line for warning in warnings(verdict) for line in wrapped(f"warning: {warning}")]
    return Told("\n".join([*warned, lead]), rest)
