"""The graph as plain data, to be kept in a commit, and what differs between that and the graph that is to go on from it."""

from dataclasses import fields
from typing import Any, Literal, NamedTuple

import msgspec

from .._limits import Capacity, Freshness
from .._plan import Plan
from .._policy import OnError, Retry, Shrink
from .._spec import NodeSpec
from .._types import type_name

Verdict = Literal["accept", "refuse"]


class Difference(NamedTuple):
    """One difference of two graphs.

    Attributes:
        path: what differs, such as ``rl.episodes.workers``.
        before: as it was saved; ``None`` for nothing.
        now: as it is; ``None`` for nothing.
        verdict: whether a run may go on with it.
    """

    path: str
    before: Any
    now: Any
    verdict: Verdict


_MAY_CHANGE = frozenset(
    {
        "workers", "needs", "deadline_s", "placement", "on_error", "missing", "weights", "patience", "steps", "capacity",
        "size", "budget", "durable",
    }
)  # fmt: skip
"""Of a node, an edge, a pool or a rate: what decides what comes next, and says nothing of what is in a moment."""
_MAY_COME_AND_GO = frozenset({"pools", "rates"})
"""What a moment holds nothing of."""


def outline(plan: Plan) -> dict[str, Any]:
    """A graph as plain values: what a moment of it depends on, and what else a run can be asked to change."""
    spec = plan.spec
    whole = {
        "name": spec.name,
        "nodes": {name: _node(node) for name, node in spec.nodes.items()},
        "edges": {
            edge.name: {"capacity": _capacity(plan.capacities[edge.name]), "durable": edge.durable} for edge in spec.edges
        },
        "pools": {name: {"size": list(spec.pool_bounds(name))} for name in spec.pools},
        "rates": {name: {"size": rate} for name, rate in spec.rates.items()},
        "cells": {name: {"type": type_name(cell.type)} for name, cell in spec.cells.items()},
        "feedback": {f"{one.source}->{one.cell}": _freshness(one.freshness) for one in spec.feedback},
    }
    return msgspec.json.decode(msgspec.json.encode(whole))  # as it is read from a manifest


def differences(before: dict[str, Any], now: dict[str, Any]) -> list[Difference]:
    """What differs, in the order of the graph as it is."""
    found: list[Difference] = []
    for part in now:
        if part == "name":
            if before.get(part) != now[part]:
                found.append(Difference("name", before.get(part), now[part], "refuse"))
            continue
        old, new = before.get(part, {}), now[part]
        for name in dict.fromkeys([*new, *old]):
            path = f"{now['name']}.{name}" if part not in _MAY_COME_AND_GO else f"{now['name']}.{part}.{name}"
            found += _of_one(path, old.get(name), new.get(name), "accept" if part in _MAY_COME_AND_GO else "refuse")
    return found


def _of_one(path: str, before: dict[str, Any] | None, now: dict[str, Any] | None, alone: Verdict) -> list[Difference]:
    """What differs between two of a name; ``alone``: where there is only one."""
    if before is None or now is None:
        return [Difference(path, before, now, alone)]
    keys = [key for key in dict.fromkeys([*now, *before]) if before.get(key) != now.get(key)]
    return [
        Difference(f"{path}.{key}", before.get(key), now.get(key), "accept" if key in _MAY_CHANGE else "refuse") for key in keys
    ]


def _node(node: NodeSpec) -> dict[str, Any]:
    """What a node is. ``members`` and ``items`` are what groups and steps are made of; a moment holds some half made."""
    return {
        "kind": node.kind,
        "takes": type_name(node.takes),
        "gives": type_name(node.gives),
        "workers": node.workers,
        "order": node.order,
        "reads": node.reads,
        "deadline_s": None if node.deadline_s is None else float(node.deadline_s),
        "placement": type(node.placement).__name__,
        "members": node.size,
        "items": None if node.collect is None else node.collect.items,
        "steps": None if node.collect is None else node.collect.steps,
        "needs": dict(node.needs),
        "on_error": _policy(node.on_error),
        "missing": node.missing if isinstance(node.missing, str) else _policy(node.missing),
        "weights": dict(node.weights),
        "patience": node.patience,
        "budget": None if node.budget is None else list(node.budget),
    }


def _freshness(freshness: Freshness | None) -> dict[str, Any]:
    return {} if freshness is None else {"max_lag": freshness.max_lag, "late": freshness.late, "depth": freshness.depth}


def _policy(policy: OnError | Shrink) -> str:
    """A policy in words, without what is code in it."""
    numbers = [f"{f.name}={v!r}" for f in fields(policy) if isinstance(v := getattr(policy, f.name), int | float | str)]
    if isinstance(policy, Retry) and not isinstance(policy.then, str):
        numbers.append(f"then={_policy(policy.then)}")
    return f"{type(policy).__name__}({', '.join(numbers)})"


def _capacity(capacity: Capacity) -> list[float | None]:
    return [capacity.items, capacity.cost]
