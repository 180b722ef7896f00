"""How random graphs are drawn. Every choice comes from one generator, and its smallest one is the plainest graph."""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias

from .._limits import Freshness
from .._policy import Missing, Retry, Shrink
from ._graphs import Inlet, RandomGraph, Training
from ._parts import Fork, Pair, Part, Side, Step

_MISSING: tuple[Missing, ...] = ("drop", Shrink(2), Shrink(1), Retry(1, then="drop"), Retry(2, then="shrink"))
_NEEDS = (
    (), (), (("a", 1),), (("b", 2),), (("a", 1), ("b", 1)), (("c", 1),), (("starts", 1),), (("c", 1), ("starts", 2)),
)  # fmt: skip
_GROUP_ROOM = 4
"""Least bound of an edge behind a repeat, which puts a whole group on it."""

Fan: TypeAlias = Literal["", "side", "balance", "route", "broadcast"]
_FREE: tuple[Fan, ...] = ("", "", "", "side", "balance", "route", "broadcast")
_BOUND: tuple[Fan, ...] = ("", "", "side", "balance", "route")
"""For what belongs to a group or holds a ticket: a copy does neither."""


def random_graph(rnd: random.Random, *, tasks: int = 8, training: bool = False) -> RandomGraph:
    """Draw a graph.

    Args:
        rnd: where every choice comes from.
        tasks: items of a source. With training the most that may be needed: 12 steps' worth is plenty.
        training: with feedback, freshness and steps.
    """
    parts = _draw_parts(rnd, training)
    seed = rnd.randint(0, 2**20)
    graph = RandomGraph(seed, tasks, parts, inlets=_draw_inlets(rnd, tasks), threads=rnd.choice([False] * 4 + [True]))
    graph = replace(graph, patience=rnd.choice([8, 1, 2]))
    if not training:
        return replace(graph, collect=rnd.choice([None, None, 1, 3]), parts=(*parts, *_draw_ends(rnd)))
    lag = rnd.randint(0, 2)
    freshness = Freshness(lag, rnd.choice(["wait", "drop"]), rnd.choice([None, rnd.randint(0, lag)]))
    return replace(graph, training=Training(freshness, rnd.randint(1, 3), 4, rnd.choice([0.0, 0.0, 5.0])))


def _draw_inlets(rnd: random.Random, tasks: int) -> tuple[Inlet, ...]:
    return tuple(
        Inlet(
            rnd.randint(0, tasks),
            tuple(_draw_steps(rnd, f"inlet{index}-", 0, most=1)),
            rnd.choice([False, False, True]),
            rnd.randint(1, 3),
        )
        for index in range(rnd.choice([0, 0, 0, 1, 2]))
    )


def _draw_parts(rnd: random.Random, training: bool) -> tuple[Part, ...]:
    pairs = 1 if training else rnd.choice([0, 1, 1, 2])
    parts = _draw_line(rnd, "before", 0, _FREE)
    for index in range(pairs):
        inside = _draw_line(rnd, f"inside{index}-", 1, _BOUND, spread=False, first_room=_GROUP_ROOM)
        parts.append(Pair(f"groups{index}", rnd.randint(2, 4), tuple(inside), rnd.choice(_MISSING)))
        parts += _draw_line(rnd, f"after{index}-", 0, _BOUND if training else _FREE, spread=not training)
    return tuple(parts)


def _draw_ends(rnd: random.Random) -> tuple[Part, ...]:
    """Now and then, branches that lead to no common sink."""
    kind: Fan = rnd.choice(["", "", "", "", "balance", "route", "broadcast"])
    return (_draw_fork(rnd, "ends", kind, spread=True, joined=False),) if kind in ("balance", "route", "broadcast") else ()


def _draw_line(
    rnd: random.Random, prefix: str, least: int, fans: Sequence[Fan], *, spread: bool = True, first_room: int = 1
) -> list[Part]:
    parts: list[Part] = list(_draw_steps(rnd, prefix, least, spread=spread, first_room=first_room))
    kind = rnd.choice(fans)
    if kind == "":
        return parts
    name = f"{prefix}{kind}"
    if kind == "side":
        branches = tuple(
            tuple(_draw_steps(rnd, f"{name}{index}-", 0, spread=spread and rnd.choice([True, False])))
            for index in range(rnd.choice([1, 1, 2]))
        )
        fan: Part = Side(name, branches)
    else:
        fan = _draw_fork(rnd, name, kind, spread=spread)
    parts.insert(rnd.randint(0, len(parts)), fan)
    return parts


def _draw_fork(
    rnd: random.Random, name: str, kind: Literal["broadcast", "balance", "route"], *, spread: bool, joined: bool = True
) -> Fork:
    count = rnd.choice([2, 2, 3])
    names = [f"{name}{index}-" for index in range(count)]
    if kind == "balance":
        first = _draw_steps(rnd, names[0], 1, spread=spread)
        branches = [tuple(first), *(tuple(_like(rnd, step, f"{own}{step.name}") for step in first) for own in names[1:])]
    else:
        branches = [tuple(_draw_steps(rnd, own, 1, spread=spread)) for own in names]
        if joined and rnd.choice([False, True]):
            branches[-1] = ()
    doors = tuple(range(count)) + tuple(rnd.choice([(), (0,), (1, 0)]))
    return Fork(
        name,
        kind,
        tuple(branches),
        joined,
        tuple(rnd.randint(1, 3) for _ in names) if joined else (),
        rnd.choice([8, 1, 2]) if joined else 8,
        doors if kind == "route" else (),
        rnd.choice([0, 1]) if kind == "route" else 0,
    )


def _draw_steps(
    rnd: random.Random, prefix: str, least: int, *, spread: bool = True, first_room: int = 1, most: int = 2
) -> list[Step]:
    return [
        _draw_step(rnd, f"{prefix}{index}", spread, first_room if index == 0 else 1)
        for index in range(rnd.randint(least, most))
    ]


def _draw_step(rnd: random.Random, name: str, spread: bool, least_room: int) -> Step:
    key = rnd.choice([None, None, None, 2, 3])
    step = Step(
        name,
        fail=rnd.choice([0, 0.1, 0.3]),
        filter=rnd.choice([0, 0.2]),
        spread=spread and rnd.choice([False, False, True]),
        retries=rnd.choice([0, 0, 1, 2]),
        then=rnd.choice(["drop", "emit"]),
        workers=rnd.randint(1, 4),
        order=rnd.choice(["any", "input"]) if key is None else "any",
        needs=rnd.choice(_NEEDS),
        room=rnd.choice([None, least_room, least_room + 2]),
        cost=rnd.choice([None, None, None, 2.0, 6.0]),
        key=key,
        place=rnd.choice(["loop", "loop", "loop", "threads", "inline", "inline"]),
    )
    if step.place == "loop":
        return replace(step, hangs=rnd.choice([False, False, False, True]))
    if step.place == "inline" and rnd.choice([False, True]):
        return replace(step, workers=1, order="any", needs=(), cost=None, key=None)  # what is done without a task step
    return step


def _like(rnd: random.Random, step: Step, name: str) -> Step:
    """A stage that differs in everything but what becomes of its items."""
    other = _draw_step(rnd, name, False, 1)
    same: dict[str, Any] = {field: getattr(step, field) for field in ("fail", "filter", "spread", "retries", "then")}
    return replace(other, acts=step.name, **same)
