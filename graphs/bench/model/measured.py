"""Times of a run, read from its trace, and what the event model makes of the same times: how well the run used them.

An attempt takes in the model what it took in the run, so all that slows attempts themselves counts for both: waits inside them,
an engine that is shared, a busy processor. What is judged is what the run made of them: when each could begin.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from flow import Plan
from flow.trace import OPEN, Spans, Trace
from graphs.bench.model.declared import line_of
from graphs.bench.model.event_model import Model, Outcome

_GRAPH, _LOAD = "graph ", " (load)"
Key = tuple[str, tuple[int, ...], int]
"""Node, path and retry, as ``Times`` is asked for them."""


@dataclass(frozen=True)
class Measured:
    """Times of one run; a ``Times``.

    Attributes:
        table: seconds of each attempt.
        failed: attempts that failed and were made again.
        trained: paths in the order in which the sink took them.
        began_ns: when the workers began.
        ended_ns: when the last step was finished.
    """

    table: Mapping[Key, float]
    failed: Collection[Key]
    trained: tuple[tuple[int, ...], ...]
    began_ns: int
    ended_ns: int

    def seconds(self, node: str, path: tuple[int, ...], retry: int = 0) -> float:
        """See ``Times``. What the run did not do, as a load that a newer version overtook, takes the mean of its node.

        Raises:
            LookupError: the run has nothing of this node.
        """
        known = self.table.get((node, path, retry))
        if known is not None:
            return known
        if node not in self._means:
            raise LookupError(f"expected a time of {node} in the trace of the run, got none; judge a run of the same graph")
        return self._means[node]

    def fails(self, node: str, path: tuple[int, ...], retry: int = 0) -> bool:
        """See ``Times``."""
        return (node, path, retry) in self.failed

    @property
    def run_s(self) -> float:
        """Seconds from the beginning to the end of the last step."""
        return (self.ended_ns - self.began_ns) / 1e9

    @cached_property
    def _means(self) -> Mapping[str, float]:
        by_node = defaultdict[str, list[float]](list)
        for (node, _, _), seconds in self.table.items():
            by_node[node].append(seconds)
        return {node: sum(all_s) / len(all_s) for node, all_s in by_node.items()}


@dataclass(frozen=True)
class Judged:
    """A run beside what the model makes of its times.

    Attributes:
        measured: the run.
        model: the same times under the same rules, at no cost.
    """

    measured: Measured
    model: Outcome

    @property
    def ratio(self) -> float:
        """The model's seconds over the run's: 1 where the run lost nothing between its stages."""
        return self.model.seconds / self.measured.run_s


def judged(plan: Plan, trace: Trace) -> Judged:
    """Run the model with the times of a run.

    Args:
        plan: what ran.
        trace: of that run, and of no other.

    Raises:
        ValueError: the graph is none that the model knows, or the trace tells too little of it.
    """
    line = line_of(plan)
    measured = measured_times(trace)
    return Judged(measured, Model(line, measured).run())


def measured_times(trace: Trace) -> Measured:
    """Read the times of the one run in a trace.

    Raises:
        ValueError: it has several graphs, no step that was finished, or groups that were dropped, since a trace does not say by
            which member.
    """
    lanes = list(_lanes(trace))
    graphs = sorted({graph for graph, _, _ in lanes})
    finished = [
        spans.ends_ns[index] for _, _, spans in lanes for index in _works(spans) if spans.args(index).get("call") == "finish"
    ]
    table: dict[Key, float] = {}
    paths: dict[int, tuple[int, ...]] = {}
    for _, node, spans in lanes:
        _read_attempts(node, spans, table, paths)
    failed = {(node, path, retry - 1) for node, path, retry in table if retry}
    dropped = _dropped(trace, failed)
    if len(graphs) != 1 or not finished or dropped or OPEN in finished:
        raise ValueError(
            "expected the trace of one run that finished its steps and dropped nothing, got "
            f"{', '.join(graphs) or 'no graph'}, {len(finished)} steps, dropped: {', '.join(dropped) or 'nothing'}, in the "
            "event model; judge another run"
        )
    added: list[tuple[int, int]] = []
    for _, _, spans in lanes:
        added += _read_sink(spans, table, paths)
    _read_loads(trace, table)
    return Measured(
        table=table,
        failed=failed,
        trained=tuple(paths[birth] for _, birth in sorted(added)),
        began_ns=min(spans.starts_ns[0] for _, _, spans in lanes),
        ended_ns=max(finished),
    )


def _dropped(trace: Trace, failed: Collection[Key]) -> list[str]:
    """Why items were dropped for good: not those that were made again, nor what was on its way when all was done."""
    again = {(node, ".".join(map(str, path))) for node, path, _ in failed}
    gone = [each.args for each in trace.instants if each.name == "dropped" and each.args.get("reason") != "surplus"]
    return sorted({str(args.get("reason")) for args in gone if (args.get("node"), args.get("item")) not in again})


def _lanes(trace: Trace) -> Iterator[tuple[str, str, Spans]]:
    """Graph, node and slices of each worker that did anything."""
    for number, spans in trace.spans.items():
        track = trace.tracks[number]
        node = trace.tracks.get(track.parent or 0)
        graph = None if node is None else trace.tracks.get(node.parent or 0)
        if node is None or graph is None or not graph.name.startswith(_GRAPH) or not len(spans):
            continue
        if track.name.startswith(f"{node.name}/") and track.name.removeprefix(f"{node.name}/").isdecimal():
            yield graph.name.removeprefix(_GRAPH), node.name, spans


def _works(spans: Spans) -> Iterator[int]:
    """Indices of slices of work that are told to their end."""
    return (i for i in range(len(spans)) if not spans.depths[i] and not spans.names[i].startswith("wait for "))


def _seconds(spans: Spans, index: int) -> float:
    return (spans.ends_ns[index] - spans.starts_ns[index]) / 1e9


def _read_attempts(node: str, spans: Spans, table: dict[Key, float], paths: dict[int, tuple[int, ...]]) -> None:
    """Note what each attempt took, and the path that stands behind each birth number."""
    for index in _works(spans):
        args = spans.args(index)
        if "item" not in args or spans.ends_ns[index] == OPEN:
            continue
        path = tuple(map(int, str(args["item"]).split(".")))
        # Quick ones share a slice, which names the first; the others take the mean of the node.
        key = node, path, int(args.get("retry", 0))
        table[key] = table.get(key, 0.0) + _seconds(spans, index) / int(args.get("items", 1))
        if "birth" in args:
            paths[int(args["birth"])] = path[:-1] if "member" in args else path


def _read_sink(spans: Spans, table: dict[Key, float], paths: Mapping[int, tuple[int, ...]]) -> Iterator[tuple[int, int]]:
    """Note what the calls of a collecting sink took; gives when it took which birth."""
    for index in _works(spans):
        args = spans.args(index)
        if args.get("call") == "add":
            birth = int(args["birth"])
            table["add", paths[birth], 0] = _seconds(spans, index)
            yield spans.starts_ns[index], birth
        elif args.get("call") == "finish":
            table["finish", (int(args["step"]) - 1,), 0] = _seconds(spans, index)


def _read_loads(trace: Trace, table: dict[Key, float]) -> None:
    for number, spans in trace.spans.items():
        if trace.tracks[number].name.endswith(_LOAD):
            for index in range(len(spans)):
                if spans.ends_ns[index] != OPEN:
                    table["load", (int(spans.args(index)["version"]),), 0] = _seconds(spans, index)
