"""Roles: who computes on the devices, the engine, the trainer, a model that scores, each with a track in the run's trace.

A span of a role is a slice of its track, and of a profile while one is taken (``profile.py``). What compiles inside is told
apart from work: by ``compiling`` where it is known beforehand, with the name of the program and its shape, and in any case by
JAX itself, which ``compilations.py`` listens to. Roles are no stages: a stage has one.
"""

import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

from flow.trace import current_recorder
from stages.profile import current_profile

_CURRENT: ContextVar["Role | None"] = ContextVar("role", default=None)
_NOTHING = nullcontext()
_COMPILING: ContextVar[bool] = ContextVar("compiling", default=False)


class Role:
    """One of a run. It records where ``flow.trace.recording`` says when it is made, and not at all where nobody records.

    Spans of one role come one after another or nest, whatever thread they are on.

    Args:
        name: of its track.
        before: called before a slice is begun, where its owner has slices of the same track in hand.
    """

    def __init__(self, name: str, before: Callable[[], None] | None = None) -> None:
        self.recorder, self._profile, self._before = current_recorder(), current_profile(), before
        self.track = 0 if self.recorder is None else self.recorder.track(name)
        self._latest_ns = 0

    @contextmanager
    def span(self, name: str, step: int | None = None, **args: Any) -> Generator[None]:
        """A slice of the role's work.

        Args:
            name: one of few.
            step: of the trainer; ``None`` for work that is of none.
            args: details.
        """
        token = _CURRENT.set(self)
        try:
            if self._profile is not None and self._profile.on:
                with self._profile.annotation(name, step):
                    yield from self._recorded(name, args if step is None else {"step": step, **args})
            else:
                yield from self._recorded(name, args if step is None else {"step": step, **args})
        finally:
            _CURRENT.reset(token)

    def _recorded(self, name: str, args: dict[str, Any]) -> Generator[None]:
        if self.recorder is None:
            yield
            return
        self._begin(name, time.monotonic_ns(), args)
        try:
            yield
        finally:
            self._end(time.monotonic_ns())

    def annotation(self, name: str) -> AbstractContextManager[Any]:
        """A slice of the profile alone, for an owner that tells the trace of its steps in another way."""
        return self._profile.annotation(name) if self._profile is not None and self._profile.on else _NOTHING

    def over(self, name: str, began_ns: int, ended_ns: int, **args: Any) -> None:
        """A slice of something that is over, and during which nothing else was told of this role."""
        if self.recorder is not None:
            self._begin(name, max(began_ns, self._latest_ns), args)  # measured by another clock, it may be off by a little
            self._end(ended_ns)

    def _begin(self, name: str, at_ns: int, args: dict[str, Any]) -> None:
        assert self.recorder is not None
        if self._before is not None:
            self._before()
        self.recorder.begin(self.track, name, at_ns, args or None)
        self._latest_ns = at_ns

    def _end(self, at_ns: int) -> None:
        assert self.recorder is not None
        self.recorder.end(self.track, at_ns)
        self._latest_ns = at_ns

    def count(self, name: str, value: float, unit: str = "") -> None:
        """The value of a counter from now on, under the role's track."""
        if self.recorder is not None:
            self.recorder.count(self.recorder.counter(name, unit, self.track), value, time.monotonic_ns())


def current_role() -> Role | None:
    """Whose span the running code is in; ``None`` outside of all."""
    return _CURRENT.get()


def is_compiling() -> bool:
    """Whether the running code is inside of ``compiling``, so that what it compiles is a slice already."""
    return _COMPILING.get()


@contextmanager
def role_span(name: str, **args: Any) -> Generator[None]:
    """A slice of the role at work, for code that does not know whose work it does; nothing outside of all roles."""
    role = _CURRENT.get()
    if role is None:
        yield
    else:
        with role.span(name, **args):
            yield


@contextmanager
def compiling(program: str, shape: str = "") -> Generator[None]:
    """A slice ``compile`` of the role at work: tracing, lowering and compiling of one program.

    Args:
        program: what it does.
        shape: what it is compiled for, such as ``8x64``; empty where it has one shape only.
    """
    token = _COMPILING.set(_CURRENT.get() is not None)
    try:
        with role_span("compile", program=program, **({"shape": shape} if shape else {})):
            yield
    finally:
        _COMPILING.reset(token)
