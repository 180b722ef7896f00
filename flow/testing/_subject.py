"""A stage as ``check_stage`` is given it: how to make it anew for each run, and what its hints promise."""

import copy
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast, get_args, get_type_hints

from .._item import Filtered, Many
from .._types import hints_of, untyped
from ._contract import Subject

T = TypeVar("T")


def subject_of(
    stage: Any,
    outputs: Any,
    per_input: int | tuple[int, int | None] | None,
    idempotent: bool,
    keep_order: bool,
    raises: tuple[type[BaseException], ...],
    cancel_within_s: float,
    reads: Any,
    pools: Mapping[str, int],
) -> Subject:
    """Read the stage; ``check_stage`` explains the arguments."""
    make = _maker(stage)
    one = make()
    gives = hints_of(one)[1]
    return Subject(
        make,
        name=getattr(one, "__name__", type(one).__name__),
        where=_where(one),
        outputs=gives if outputs is None else outputs,
        per_input=(per_input, per_input) if isinstance(per_input, int) else per_input or _per_input(one, gives),
        idempotent=idempotent,
        keep_order=keep_order,
        raises=raises,
        cancel_within_s=cancel_within_s,
        reads=reads,
        pools=pools,
    )


def _maker(stage: T | Callable[[], T]) -> Callable[[], Any]:
    """What makes the stage: the thing itself where it takes no arguments, else a copy of it."""
    if callable(stage) and not _needs_arguments(stage):
        return stage

    def make() -> Any:
        try:
            return copy.deepcopy(stage)
        except Exception as error:
            raise TypeError(
                f"expected a stage that can be copied, got {type(stage).__name__}, which cannot ({error}); pass a function "
                "that makes one: check_stage(lambda: Stage(...), inputs)"
            ) from error

    return make


def _needs_arguments(stage: Any) -> bool:
    empty = inspect.Parameter.empty
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(p.default is empty and p.kind in kinds for p in inspect.signature(stage).parameters.values())


def _per_input(stage: Any, gives: Any) -> tuple[int, int | None] | None:
    """Outputs for one input by the hint of what the stage returns."""
    target = stage if inspect.isroutine(stage) else type(stage).__call__
    try:
        hint = get_type_hints(target).get("return")
    except (NameError, TypeError):
        return None
    if untyped(gives):
        return None
    named = {getattr(member, "__origin__", member) for member in (hint, *get_args(hint))}
    return None if Many in named else (0, 1) if Filtered in named else (1, 1)


def _where(stage: Any) -> str:
    """Where the stage is written, as ``file:line``; empty where that is not known."""
    try:
        target: Any = stage if inspect.isroutine(stage) else cast("type[Any]", type(stage))
        return f"{Path(inspect.getsourcefile(target) or '').name}:{inspect.getsourcelines(target)[1]}"
    except (OSError, TypeError):
        return ""
