"""Looking at a state from outside: where every item is, and a moment as plain data."""

from typing import Any

from flow._core.item import Item
from flow._core.state import State


def seen(state: State) -> list[tuple[Any, ...]]:
    """Path, place and what is to be seen of every item, by looking everywhere."""
    found: list[tuple[Any, ...]] = []
    for name, node in state.nodes.items():
        for edge in node.inputs:
            assert [i.position for i in edge.buffer] == sorted({i.position for i in edge.buffer}), (
                f"{edge.name} is out of order"
            )
            found += [
                (i.path, f"waits on {edge.name}", i.position, i.version, i.failed, i.retry, i.attempt, i.retries)
                for i in edge.buffer
            ]
            found += [(i.path, f"leased from {edge.name}") for i in edge.out.values()]
        found += [(i.path, f"ready at {name}") for i in node.ready]
        if node.spec.kind == "group" and node.groups is not None:
            for birth, group in node.groups.open.items():
                found.append((group.origin.path, f"open {birth} at {name}"))
                found += [(i.path, f"held {birth} at {name}") for i in (*group.values.values(), *group.failed.values())]
            found += [(i.path, f"again at {name}") for i in node.groups.retries]
    return found


def plain(thing: Any) -> Any:
    """A moment, or a part of one, as something that compares by what is in it."""
    if isinstance(thing, Item):
        return tuple(plain(getattr(thing, name)) for name in Item.__struct_fields__ if name != "seen")
    if isinstance(thing, dict):
        return {key: plain(value) for key, value in thing.items()}
    if isinstance(thing, tuple | list):
        return [plain(part) for part in thing]
    fields = getattr(thing, "__dataclass_fields__", None)
    return thing if fields is None else (type(thing).__name__, [plain(getattr(thing, name)) for name in fields])
