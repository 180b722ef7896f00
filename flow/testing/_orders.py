"""The orders a graph promises, looked up in the diary of a run.

Of two items that a source drew, or that a stage handled which keeps order, the older one stands before the other on every edge
that both can reach on one way only, past nodes that merely pass on. A stage with a key promises it for equal keys.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from .._spec import NodeSpec, Spec
from ._works import Diary, Path

_PASSING = ("broadcast", "balance", "route", "merge")


def order_faults(spec: Spec, diary: Diary) -> list[str]:
    """Say where an order was broken, as text."""
    found = list(diary.faults)
    meeting = spec.sources_that_meet()
    for target, places in diary.places.items():
        before = _before(spec, target)
        for source in _comparable(spec, before):
            node = spec.nodes[source]
            if _keeps(node):
                others = [diary.places.get(other, {}) for other in before if other != source]
                find = _drawn(meeting, source) if node.kind == "source" else _handled(diary, source, others)
                found += _broken(f"{source} to {target}", places, find)
    return found


def checked_orders(spec: Spec) -> set[str]:
    """Kinds of promise in this graph that a diary can tell of: source, input, key, one worker."""
    targets = [node.name for node in spec.nodes.values() if node.kind in ("stage", "sink")]
    return {_keeps(spec.nodes[source]) for target in targets for source in _comparable(spec, _before(spec, target))} - {""}


def _comparable(spec: Spec, before: Counter[str]) -> list[str]:
    """Those of the nodes before one from which items come to it on one way only, and on none through another stage."""
    behind = set[str]().union(*(spec.ancestors(name) for name in before)) if len(before) > 1 else set[str]()
    return [name for name, ways in before.items() if ways == 1 and name not in behind]


def _before(spec: Spec, target: str) -> Counter[str]:
    """Ways back from a node to the nearest ones that do not merely pass on."""
    found: Counter[str] = Counter()
    rest = [edge.source for edge in spec.inputs(target)]
    while rest:
        name = rest.pop()
        if spec.nodes[name].kind in _PASSING:
            rest += [edge.source for edge in spec.inputs(name)]
        else:
            found[name] += 1
    return found


def _keeps(node: NodeSpec) -> str:
    """Which order a node promises; empty for none."""
    if node.kind == "source":
        return "source"
    if node.kind != "stage":
        return ""
    return "key" if node.key is not None else "input" if node.order == "input" else "one worker" if node.workers == 1 else ""


Find = Callable[[Path], tuple[int, int] | None]
"""Of the item that one was made of, the place at an earlier node, and the kind among which order is kept; ``None`` to skip."""


def _drawn(meeting: list[str], source: str) -> Find:
    prefix = (meeting.index(source),) if source in meeting else ()
    at = len(prefix)
    return lambda path: (path[at], 0) if path[:at] == prefix else None


def _handled(diary: Diary, source: str, others: Sequence[Mapping[Path, int]]) -> Find:
    places, keys = diary.places.get(source, {}), diary.keys.get(source, {})

    def find(path: Path) -> tuple[int, int] | None:
        for length in range(len(path), 0, -1):
            if path[:length] in places:
                place = places[path[:length]]
                # A member that was made again may have gone another way the second time.
                twice = place < 0 or any(path[:length] in other for other in others)
                return None if twice else (place, keys.get(path[:length], 0))
        return None

    return find


def _broken(name: str, places: dict[Path, int], find: Find) -> Iterator[str]:
    last: dict[int, tuple[int, Path]] = {}
    for path, _ in sorted(((path, place) for path, place in places.items() if place >= 0), key=lambda entry: entry[1]):
        before = find(path)
        if before is None:
            continue
        place, kind = before
        if kind in last and last[kind][0] > place:
            yield f"from {name}, {path} came behind {last[kind][1]}"
        last[kind] = (place, path)
