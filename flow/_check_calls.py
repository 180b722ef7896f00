"""What ``build`` proves about the user's code: that it can be called the way the engine calls it."""

import inspect
from collections.abc import Iterable, Iterator
from typing import Any

from ._errors import Fault
from ._spec import NodeSpec, Spec

_MISSING: Any = object()


def calls(spec: Spec) -> Iterator[Fault]:
    """Rule B1: every function takes the arguments it will get. Without it the first item of a long run would find out."""
    for node in spec.nodes.values():
        if node.stage is not None:
            yield from _calls_of(f"{spec.name}.{node.name}", node)
        for setting, function in (("key", node.key), ("by", node.by)):
            if function is not None:
                yield from _gives_key(f"{spec.name}.{node.name}.{setting}", function, node.where)
    for cell in spec.cells.values():
        if cell.load is not None:
            yield from _callable(f"{spec.name}.{cell.name}.load", cell.load, ("value", "version"), cell.where)


def _calls_of(path: str, node: NodeSpec) -> Iterator[Fault]:
    stage = node.stage
    if node.kind == "source":
        if hasattr(stage, "draw") or not isinstance(stage, Iterable):
            yield from _callable(f"{path}.draw", getattr(stage, "draw", _MISSING), (), node.where)
    elif node.collect is None:
        yield from _callable(path, stage, ("value", "context"), node.where)
    else:
        yield from _callable(f"{path}.add", getattr(stage, "add", _MISSING), ("value", "context"), node.where)
        yield from _callable(f"{path}.finish", getattr(stage, "finish", _MISSING), ("context",), node.where)


def _gives_key(path: str, function: Any, where: str) -> Iterator[Fault]:
    yield from _callable(path, function, ("value",), where)
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004
        yield Fault(
            "B1", path, "a function that gives the key at once", "an async one", where,
            "find the key in a stage before this node, and read it here",
        )  # fmt: skip


def _callable(path: str, function: Any, arguments: tuple[str, ...], where: str) -> Iterator[Fault]:
    wanted = f"({', '.join(arguments)})"
    if not callable(function):
        got = "nothing of that name" if function is _MISSING else f"a {type(function).__name__}"
        yield Fault(
            "B1", path, f"something that is called with {wanted}", got, where, f"define it with the parameters {wanted}"
        )
        return
    try:
        # Not what a decorator claims to wrap, but what is really called.
        signature = inspect.signature(function, follow_wrapped=False)
    except (ValueError, TypeError):
        return  # nothing can be read, as of some functions written in C
    try:
        signature.bind(*arguments)
    except TypeError as error:
        yield Fault(
            "B1", path, f"something that is called with {wanted}", f"the parameters {_parameters(signature)}: {error}", where,
            f"give it the parameters {wanted}",
        )  # fmt: skip


def _parameters(signature: inspect.Signature) -> str:
    plain = [each.replace(annotation=inspect.Parameter.empty) for each in signature.parameters.values()]
    return str(signature.replace(parameters=plain, return_annotation=inspect.Signature.empty))
