"""Random graphs that are killed: what reached their ends over all lives, which is in their states, and what must have."""

import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory

from flow import Graph, Node
from flow.testing import Collected, RandomGraph, expected, random_graph
from flow.testing._graphs import END
from flow.testing._interpreter import Expected
from flow.testing._killed import Kill, Life, Lived, killed
from flow.testing._oracle import _differences, _members

POINTS = (
    "commit.begin", "commit.taken", "commit.moment", "commit.saved", "commit.manifest", "commit.renamed", "commit.retained",
    "resume.begin", "resume.states", "resume.restored",
)  # fmt: skip


class Ends:
    """What reached the sinks of a graph, in this life and, by the state, in those before it."""

    def __init__(self) -> None:
        self.sinks: defaultdict[str, Collected] = defaultdict(Collected)
        self._before: list[tuple] = []

    @property
    def arrived(self) -> list[tuple]:
        """All that came: end, path, members, lag."""
        now = [
            (end, arrival.path, _members(arrival.value), arrival.lag)
            for end, sink in self.sinks.items()
            for arrival in sink.arrivals
        ]
        return [*self._before, *now]

    def state(self) -> str:
        return json.dumps(self.arrived)

    def restore(self, state: str) -> None:
        self._before = [_tuples(one) for one in json.loads(state)]

    def reached(self, end: str) -> Counter:
        return Counter((path, members) for name, path, members, _ in self.arrived if name == end)


def drawn_to_be_killed(seed: int, *, training: bool) -> RandomGraph:
    """A random graph whose sink takes steps, so that there are commits on the way."""
    rnd = random.Random(seed)
    drawn = random_graph(rnd, tasks=30 if training else 6, training=training)
    return drawn if training else replace(drawn, collect=rnd.choice([1, 1, 2, 3]))


def lives_of(drawn: RandomGraph, folder: Path, kills: list[Kill], seed: int, every: int) -> tuple[list[Lived], Ends]:
    """Kill it at these; gives the lives, and what reached the ends over all of them. Half of the seeds keep a journal."""
    ends: list[Ends] = []
    journal = seed % 4 > 1

    def begin() -> Life:
        ends.append(Ends())
        graph = drawn.graph(ends[-1].sinks)
        return Life(with_durable_edges(graph) if journal else graph, {"ends": ends[-1]})

    return killed(begin, folder, kills, seed=seed, every=every, journal=journal, disturb=(0, 0.05)[seed // 4 % 2]), ends[-1]


def with_durable_edges(graph: Graph) -> Graph:
    """Make every edge durable that may be."""
    spec = graph.spec()
    for edge in spec.edges:
        if spec.nodes[edge.source].kind == "stage":
            graph.edge(Node(graph, edge.source), Node(graph, edge.target), durable=True)
    return graph


def faults_after(drawn: RandomGraph, lives: list[Lived], ends: Ends) -> Iterator[str]:
    """What is wrong with what reached the ends: lost, doubled, too old, too few."""
    summary = lives[-1].summary
    assert summary is not None
    if summary.status != "completed":
        yield f"the last life is {summary.status}"
    want = expected(drawn)
    for end in sorted({name for name, *_ in ends.arrived} | {*want}):
        yield from _differences(end, want.get(end, Expected(Counter(), Counter())), ends.reached(end))
    training = drawn.training
    if training is None:
        return
    trained = [(path, lag) for end, path, _, lag in ends.arrived if end == END]
    if len({path for path, _ in trained}) < len(trained):
        yield f"trained twice: {trained}"
    if not all(lag is not None and 0 <= lag <= training.freshness.max_lag for _, lag in trained):
        yield f"lags of {trained}"
    needed, may = training.items * training.steps, want[END].may.total() if END in want else 0
    if len(trained) > needed or (training.freshness.late == "wait" and may >= needed > len(trained)):
        yield f"{len(trained)} groups trained of {needed}"


def ways_to_die(drawn: RandomGraph, folder: Path, seed: int, every: int, most: int) -> Iterator[list[Kill]]:
    """Each commit point of a run, each of a restore, times between, and several in a row."""
    (whole,), _ = lives_of(drawn, folder, [], seed, every)
    places = [Kill(nth=place + 1) for place in range(len(whole.points))]
    rnd = random.Random(seed)
    rnd.shuffle(places)
    times = [Kill(whole.seconds * (place + 0.5) / most, suspend=place % 3 == 2) for place in range(most)]
    for place, when in zip_longest(places[:most], times):
        yield [when if place is None else place]
        anywhere, restoring = (Kill(point=rnd.choice(points)) for points in (POINTS, POINTS[-3:]))
        yield [kill for kill in (when, place, restoring, anywhere) if kill is not None]


def _tuples(value: object) -> object:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def die_often(seeds: range, most: int = 6) -> tuple[Counter, dict[int, str]]:
    """Kill the graphs of these seeds in many ways; gives how often at which place, and by seed what was wrong."""
    died: Counter[str] = Counter()
    failed: dict[int, str] = {}
    for seed in seeds:
        drawn, every = drawn_to_be_killed(seed, training=seed % 2 == 0), 1 + seed % 3
        try:
            with TemporaryDirectory() as folder:
                for place, kills in enumerate(ways_to_die(drawn, Path(folder) / "whole", seed, every, most)):
                    lives, ends = lives_of(drawn, Path(folder) / str(place), kills, seed, every)
                    died.update(life.points[-1] if life.points else "before any" for life in lives[:-1])
                    if faults := [*faults_after(drawn, lives, ends)]:
                        failed[seed] = f"{kills}: {faults}"
        except Exception as error:
            failed[seed] = "\n".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())])
    return died, failed
