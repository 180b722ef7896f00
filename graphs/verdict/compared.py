"""Two verdicts side by side: what changed between two runs, and which of their settings differ."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from flow.explain import GraphVerdict, Part, Verdict
from graphs.verdict.names import of_lever, of_part
from graphs.verdict.text import time_of

_LEAST = 0.02
"""Share below which a change is not told."""
_MOST_SLOWER = 6
_CELL, _LABEL = 14, 46


class Setting(msgspec.Struct, frozen=True):
    """A setting that differs: its path, and both values; ``None`` where one has none of it."""

    path: str
    one: Any
    other: Any


def compared(one: Verdict, other: Verdict, settings: tuple[Setting, ...], names: tuple[str, str]) -> str:
    """What changed, as lines of 80 columns.

    Args:
        one: of the one run.
        other: of the other.
        settings: those that differ.
        names: of the runs.
    """
    lines = [_row("", *(name[-_CELL + 1 :] for name in names))]
    for mine, theirs in pairs(one, other):
        lines += ["", *_graph(mine, theirs)]
    lines += ["", "Work that takes longer or shorter (median):", *_slower(one, other)]
    lines += ["", "Settings that differ:" if settings else "No setting differs that is known."]
    lines += [_row(f"  {setting.path}", str(setting.one), str(setting.other)) for setting in settings]
    return "\n".join(lines)


def pairs(one: Verdict, other: Verdict) -> Iterator[tuple[GraphVerdict, GraphVerdict]]:
    """Executions of the same graph, the first with the first and so on; of one that was cut into pieces the longest."""
    left = _longest(other)
    for mine in _longest(one):
        theirs = next((graph for graph in left if graph.graph == mine.graph), None)
        if theirs is not None:
            left.remove(theirs)
            yield mine, theirs


def _longest(verdict: Verdict) -> list[GraphVerdict]:
    found: list[GraphVerdict] = []
    for graph in verdict.graphs:
        if graph.piece == 1:
            found.append(graph)
        elif graph.seconds > found[-1].seconds:
            found[-1] = graph
    return found


def differing(one: Mapping[str, Any], other: Mapping[str, Any], above: str = "") -> Iterator[Setting]:
    """Settings that differ, by path."""
    for name in dict.fromkeys((*one, *other)):
        path, mine, theirs = f"{above}{name}", one.get(name), other.get(name)
        if isinstance(mine, Mapping) and isinstance(theirs, Mapping):
            yield from differing(mine, theirs, f"{path}.")
        elif mine != theirs:
            yield Setting(path, mine, theirs)


def _graph(one: GraphVerdict, other: GraphVerdict) -> Iterator[str]:
    yield f"== {one.graph} =="
    yield _row("steps", f"{one.steps:,}", f"{other.steps:,}")
    yield _row("a step, median", time_of(one.step), time_of(other.step), _change(one.step, other.step))
    yield _row("in all", time_of(one.seconds), time_of(other.seconds), _change(one.seconds, other.seconds))
    yield _row(f"{one.sink} waited", f"{one.idle:.0%}", f"{other.idle:.0%}")
    bounds = [of_lever(graph.bound).partition(":")[0] if graph.bound else "nothing known" for graph in (one, other)]
    yield f"bounded by {bounds[0]}" + (" in both" if bounds[0] == bounds[1] else f", the other by {bounds[1]}")
    yield from _shares("critical path", _by_name(one.path), _by_name(other.path))
    busy = [{f"{stage.name} at work": stage.work for stage in graph.stages} for graph in (one, other)]
    yield from _shares("workers", *busy)


def _by_name(path: tuple[Part, ...]) -> dict[str, float]:
    return {of_part(part): part.share for part in path}


def _shares(title: str, one: Mapping[str, float], other: Mapping[str, float]) -> Iterator[str]:
    names = [name for name in dict.fromkeys((*one, *other)) if abs(one.get(name, 0.0) - other.get(name, 0.0)) >= _LEAST]
    yield f"{title}, as far as it changed by {_LEAST:.0%} or more:" if names else f"{title}: changed by less than {_LEAST:.0%}"
    for name in sorted(names, key=lambda name: one.get(name, 0.0) - other.get(name, 0.0)):
        yield _row(f"  {name}", f"{one.get(name, 0.0):.0%}", f"{other.get(name, 0.0):.0%}")


def _slower(one: Verdict, other: Verdict) -> Iterator[str]:
    """Work by name whose time changed, that which makes the most of it first."""
    theirs = {(row.where, row.name, row.detail): row for row in other.slow}
    found: list[tuple[float, str]] = []
    for row in one.slow:
        same = theirs.get((row.where, row.name, row.detail))
        if same is not None and row.p50 > 0 and abs(same.p50 / row.p50 - 1) >= 0.1:
            label = row.where if row.name == row.where else f"{row.where} > {row.name}"
            line = _row(f"  {label} {row.detail}".rstrip(), time_of(row.p50), time_of(same.p50), _change(row.p50, same.p50))
            found.append((abs(same.p50 - row.p50) * min(row.count, same.count), line))
    yield from (line for _, line in sorted(found, reverse=True)[:_MOST_SLOWER])


def _change(one: float, other: float) -> str:
    return f"{other / one - 1:+.0%}" if one > 0 else ""


def _row(label: str, one: str, other: str, change: str = "") -> str:
    width = _LABEL if not change else _LABEL - 6
    return f"{label[:width]:<{width}} {one[:_CELL]:>{_CELL}} {other[:_CELL]:>{_CELL}}" + (f" {change:>5}" if change else "")
