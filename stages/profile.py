"""A profile by JAX's own profiler (XProf) of some steps of the trainer, with the names of the run's trace in it.

The trace of a run says who waited for whom; a profile says what the devices did meanwhile, operation by operation. It is large
and slows the run down, so it is taken of a few steps. The trainer tells where its steps begin and end; roles (``roles.py``) put
their names into it while it is on. Who takes one is set around a run, as its recorder is.
"""

import threading
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import jax

_CURRENT: ContextVar["Profile | None"] = ContextVar("profile", default=None)


class Profile:
    """One profile of a run.

    Args:
        folder: where its files go.
        first: step of the trainer that it begins with, from 1.
        last: step it ends after.

    Attributes:
        last: the last step.
        armed: whether the steps that are told of are those it is about, as in one of several graphs of a program.
        on: whether it is being taken.
    """

    def __init__(self, folder: Path, first: int, last: int) -> None:
        self._folder, self._first, self.last = folder, first, last
        self._starting = threading.Lock()
        self.armed = self.on = False

    def step_begins(self, step: int) -> None:
        """Start, if it is the first step. Call it from the thread that trains: it takes a moment.

        Raises:
            RuntimeError: somebody else is taking a profile in this process.
        """
        with self._starting:
            if not self.armed or self.on or step != self._first:
                return
            try:
                jax.profiler.start_trace(self._folder, profiler_options=_options())
            except RuntimeError as error:
                raise RuntimeError(
                    f"expected to take the only profile of this process, got another under way ({error}), before step {step}; "
                    "end that one, or leave --options.profile out"
                ) from error
            self.on = True

    def close(self) -> None:
        """Stop and write the files, which may take seconds; also in the middle, where a run ends before. Harmless twice."""
        with self._starting:
            if self.on:
                self.on = False
                jax.profiler.stop_trace()

    def annotation(self, name: str, step: int | None = None) -> AbstractContextManager[Any]:
        """A slice of the profile, by this name. Open and close it on one thread.

        Args:
            name: the same as in the trace of the run.
            step: of the trainer, by which the profiler groups; ``None`` for work that is of none.
        """
        if step is None:
            return jax.profiler.TraceAnnotation(name)
        return jax.profiler.StepTraceAnnotation(name, step_num=step)


def current_profile() -> Profile | None:
    """The profile of the run around; ``None`` where there is none."""
    return _CURRENT.get()


@contextmanager
def profiling(profile: Profile | None) -> Generator[None]:
    """Have what is called inside see this profile; it is closed on leaving."""
    token = _CURRENT.set(profile)
    try:
        yield
    finally:
        _CURRENT.reset(token)
        if profile is not None:
            profile.close()


def _options() -> jax.profiler.ProfileOptions:
    options = jax.profiler.ProfileOptions()
    # Every call of Python would bury our names, and cost more than what is measured.
    options.python_tracer_level = 0
    return options
