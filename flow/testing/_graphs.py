"""Whole random graphs as values, and the real graph each of them declares."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .._graph import Graph, Node
from .._limits import Collect, Freshness, Inline, Threads
from ._collected import Collected
from ._parts import POOLS, RATES, Part, Site
from ._works import Diary, SlowSink, loader

END = "sink"
"""Name of the sink at the end of the line."""


@dataclass(frozen=True)
class Inlet:
    """A further source, which is merged with the first.

    Attributes:
        tasks: its items.
        parts: what lies between it and the merge.
        threads: whether it draws on a thread.
        weight: of this input of the merge.
    """

    tasks: int
    parts: tuple[Part, ...] = ()
    threads: bool = False
    weight: int = 1


@dataclass(frozen=True)
class Training:
    """The sink takes steps and feeds their number back. There is one pair then, and it reads the cell.

    Attributes:
        freshness: of the feedback edge.
        items: groups in a step.
        steps: steps until the run is complete.
        load_s: most seconds until a version is in force.
    """

    freshness: Freshness
    items: int
    steps: int
    load_s: float


@dataclass(frozen=True)
class RandomGraph:
    """A random graph.

    Attributes:
        seed: decides what becomes of each item, and how long each attempt takes.
        tasks: items of the source.
        parts: what lies between source and sink, or the forks that end in sinks of their own.
        collect: items in a step of the sink, the last one short; ``None`` for a plain sink.
        training: feedback from the sink; ``None`` for none.
        inlets: sources that are merged with the first one, before the parts.
        threads: whether the source draws on a thread.
        patience: of that merge.
    """

    seed: int
    tasks: int
    parts: tuple[Part, ...]
    collect: int | None = None
    training: Training | None = None
    inlets: tuple[Inlet, ...] = ()
    threads: bool = False
    patience: int = 8

    def graph(self, sinks: Mapping[str, Collected[Any]], diary: Diary | None = None) -> Graph:
        """Declare the real graph.

        Args:
            sinks: what keeps the arrivals, by the name of the end: ``sink``, and those of branches that lead to no merge. A
                ``defaultdict(Collected)`` will do.
            diary: what stages and sinks write into.
        """
        graph, training = Graph("random", pools=POOLS, rates=RATES), self.training
        cell = None if training is None else graph.latest("steps", int, load=loader(self.seed, training.load_s))
        site = Site(graph, self.seed, sinks, Diary() if diary is None else diary, cell)
        node = site.line(self.parts, self._sources(site))
        if node is None:
            return graph
        slow = SlowSink(sinks[END], self.seed, site.diary)
        if training is not None and cell is not None:
            end = graph.sink(END, slow, collect=Collect(training.items, steps=training.steps))
            graph.feedback(end, cell, initial=0, freshness=training.freshness)
        elif self.collect is not None:
            end = graph.sink(END, slow, collect=Collect(self.collect, end="short"))
        else:
            end = graph.sink(END, slow)
        graph.edge(node, end)
        return graph

    def _sources(self, site: Site) -> Node[Any, Any]:
        lines: list[Node[Any, Any]] = []
        for index, inlet in enumerate((Inlet(self.tasks, threads=self.threads), *self.inlets)):
            placement = Threads() if inlet.threads else Inline()
            source = site.graph.source(f"tasks{index or ''}", range(inlet.tasks), placement=placement)
            last = site.line(inlet.parts, source)
            assert last is not None
            lines.append(last)
        if not self.inlets:
            return lines[0]
        weights = {node.name: inlet.weight for node, inlet in zip(lines[1:], self.inlets, strict=True)}
        return site.graph.merge("all tasks", lines, weights=weights, patience=self.patience)
