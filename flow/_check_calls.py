"""What ``build`` proves about the user's code: that it can be called the way the engine calls it."""

import inspect
from collections.abc import AsyncIterable, Iterable, Iterator
from typing import Any, cast

from ._context import Context
from ._errors import Fault
from ._spec import PASSING, NodeSpec, Spec
from ._types import hints_of, untyped

_MISSING: Any = object()
_WORK = ("value", "context")


def calls(spec: Spec) -> Iterator[Fault]:
    """Rule B1: every function takes the arguments it will get. Without it the first item of a long run would find out."""
    for node in spec.nodes.values():
        if node.kind not in PASSING:
            yield from _calls_of(f"{spec.name}.{node.name}", node)
        for setting, function in (("key", node.key), ("by", node.by)):
            if function is not None or (node.kind, setting) == ("route", "by"):
                yield from _gives_key(f"{spec.name}.{node.name}.{setting}", function, node.where)
    yield from _shared(spec)
    for cell in spec.cells.values():
        if cell.load is not None:
            yield from _callable(f"{spec.name}.{cell.name}.load", cell.load, ("value", "version"), cell.where)


def _calls_of(path: str, node: NodeSpec) -> Iterator[Fault]:
    stage = node.stage
    if inspect.isclass(stage) and (node.kind == "source" or node.collect is not None or not _makes(stage)):
        yield _class(path, node, stage)
    elif node.kind == "source":
        if hasattr(stage, "draw") or not isinstance(stage, Iterable):
            yield from _drawn(f"{path}.draw", stage, node.where)
    elif node.collect is None:
        yield from _callable(path, stage, _WORK, node.where)
    else:
        yield from _callable(f"{path}.add", getattr(stage, "add", _MISSING), _WORK, node.where)
        yield from _callable(f"{path}.finish", getattr(stage, "finish", _MISSING), ("context",), node.where)


def _makes(stage: type) -> bool:
    """Whether a class stands for the function that makes its objects, of a value and a context."""
    return not any("__call__" in vars(each) for each in stage.__mro__) and next(_callable("", stage, _WORK, ""), None) is None


def _class(path: str, node: NodeSpec, stage: type) -> Fault:
    wanted = {"source": "an object with draw, or an iterable", "sink": "an object with add and finish"}
    expected = "an object that is called with (value, context)" if node.collect is None else wanted["sink"]
    return Fault(
        "B1", path, wanted["source"] if node.kind == "source" else expected, f"the class {stage.__name__}", node.where,
        f"pass an object: {stage.__name__}()",
    )  # fmt: skip


def _drawn(path: str, source: Any, where: str) -> Iterator[Fault]:
    if source is None:
        yield Fault("B1", path, "an iterable, or an object with draw", "None", where, "pass what the items come from")
    elif _asynchronous(getattr(source, "draw", None)) or isinstance(source, AsyncIterable):
        yield Fault(
            "B1", path, "a draw() that gives the next item at once", "an asynchronous one", where,
            "make draw a plain function; with placement=Threads() it may block",
        )  # fmt: skip
    else:
        yield from _callable(path, getattr(source, "draw", _MISSING), (), where)


def _shared(spec: Spec) -> Iterator[Fault]:
    """Iterators of which several sources would get a part each, by chance."""
    first: dict[int, NodeSpec] = {}
    for node in spec.nodes.values():
        if node.kind == "source" and isinstance(stage := cast("object", node.stage), Iterator):
            owner = first.setdefault(id(cast("object", stage)), node)
            if owner is not node:
                yield Fault(
                    "B1", f"{spec.name}.{node.name}", "an iterator of its own", f"the one of '{owner.name}' ({owner.where})",
                    node.where, "make one for each, or draw from one source and share its items out with graph.balance",
                )  # fmt: skip


def _gives_key(path: str, function: Any, where: str) -> Iterator[Fault]:
    yield from _callable(path, function, ("value",), where)
    if _asynchronous(function):
        yield Fault(
            "B1", path, "a function that gives the key at once", "an async one", where,
            "find the key in a stage before this node, and read it here",
        )  # fmt: skip


def _callable(path: str, function: Any, arguments: tuple[str, ...], where: str) -> Iterator[Fault]:
    wanted = f"({', '.join(arguments)})"
    if not callable(function):
        got = "nothing of that name" if function is _MISSING else f"a {type(function).__name__}"
        got = "None" if function is None else got
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
        return
    if arguments == _WORK and swapped(function):
        yield Fault(
            "B1", path, f"something that is called with {wanted}",
            f"the parameters {_parameters(signature)}, of which the first is for the context", where,
            "swap the parameters: the value comes first, then the context",
        )  # fmt: skip
    yield from _returns(path, function, where)


def swapped(function: Any) -> bool:
    """Whether a function of a value and a context takes them the other way round, by its hints or else by its names."""
    first = hints_of(function)[0]
    if first is Context or not untyped(first):
        return first is Context
    try:
        names = list(inspect.signature(function, follow_wrapped=False).parameters)
    except (ValueError, TypeError):
        return False
    return len(names) > 1 and names[0] == "context"


def _returns(path: str, function: Any, where: str) -> Iterator[Fault]:
    """A function with ``yield`` gives an object that is no value, whatever it yields."""
    code = (function, getattr(function, "__call__", None))  # noqa: B004 - the method
    got = "an async generator" if any(map(inspect.isasyncgenfunction, code)) else ""
    got = "a generator" if any(map(inspect.isgeneratorfunction, code)) else got
    if got:
        remedy = "give what it yields as one result: return Many([...])"
        yield Fault("B1", path, "a function that returns", got, where, remedy)


def _asynchronous(function: Any) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def _parameters(signature: inspect.Signature) -> str:
    plain = [each.replace(annotation=inspect.Parameter.empty) for each in signature.parameters.values()]
    return str(signature.replace(parameters=plain, return_annotation=inspect.Signature.empty))
