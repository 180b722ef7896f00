"""What ``build`` proves about code that runs in processes: that it may (B5), and that it and its items can get there (B7)."""

import pickle
from collections.abc import Iterator, Sequence
from typing import Any, cast

import msgspec
import msgspec.inspect

from ._errors import Fault
from ._limits import Processes
from ._spec import NodeSpec, Spec
from ._types import type_name, untyped


def placements(spec: Spec) -> Iterator[Fault]:
    """Rules B5 and B7 for the nodes placed in processes."""
    for node in spec.nodes.values():
        if not isinstance(node.placement, Processes) or node.stage is None:
            continue  # a node without a stage has no placement at all, which is a fault already
        if node.kind == "source" or node.collect is not None:
            kind = "source" if node.kind == "source" else "collecting sink"
            yield Fault(
                "B5", f"{spec.name}.{node.name}.placement", f"Inline() or Threads() on a {kind}, whose state is this process's",
                "Processes()", node.where, "leave it out, and put the heavy part into a stage of its own",
            )  # fmt: skip
        else:
            yield from _crosses(spec, node)


def _crosses(spec: Spec, node: NodeSpec) -> Iterator[Fault]:
    path = f"{spec.name}.{node.name}"
    refused = _pickle_error(node.stage)
    if refused is not None:
        yield Fault(
            "B7", path, "a stage that pickle can take to a process", refused, node.where,
            "use a function or class at the top of a module, and open what it holds in the process",
        )  # fmt: skip
    ports = [("in", "takes", node.takes)] + ([] if node.kind == "sink" else [("out", "gives", node.gives)])
    for port, verb, hint in ports:
        refused = _type_error(hint)
        if refused is not None:
            yield Fault(
                "B7", f"{path}.{port}", "a type that msgspec knows, since values cross to processes and back",
                f"'{node.name}' {verb} {type_name(hint)}{refused}", node.where,
                "annotate it with structs, dataclasses and built-in types, or use Threads()",
            )  # fmt: skip


class _Nowhere:
    """A file that keeps nothing: a stage may be large."""

    def write(self, data: Any, /) -> int:
        return len(data)


def _pickle_error(stage: Any) -> str | None:
    try:
        pickle.Pickler(_Nowhere()).dump(stage)
    except Exception as error:  # whatever the stage's own reduction raises
        return f"{type(error).__name__}: {error}"
    return None


def _type_error(hint: Any) -> str | None:
    """What msgspec says against a type; empty where it says nothing at all."""
    if untyped(hint):
        return ""
    try:
        msgspec.msgpack.Decoder(hint)
        foreign = _foreign(msgspec.inspect.type_info(hint))
    except (TypeError, NameError) as error:
        return f": {error}"
    return None if foreign is None else f": it does not know {type_name(foreign)}"


def _foreign(described: Any) -> Any:
    """The first class in a description of a type that msgspec would leave to a hook; ``None`` where there is none."""
    seen: set[int] = set()  # a type may hold itself
    rest: list[Any] = [described]
    for part in rest:
        if isinstance(part, msgspec.inspect.CustomType):
            return part.cls
        if isinstance(part, list | tuple):
            rest.extend(cast("Sequence[Any]", part))
        elif isinstance(part, msgspec.inspect.Type | msgspec.inspect.Field) and id(part) not in seen:
            seen.add(id(part))
            rest.extend(getattr(part, name) for name in part.__struct_fields__ if name in _PARTS)
    return None


_PARTS = frozenset({"fields", "item_type", "item_types", "key_type", "value_type", "type", "types"})
"""Attributes of msgspec's descriptions that hold descriptions."""
