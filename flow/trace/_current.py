"""The recorder of the code that runs now, for whoever records beside the stages: an engine, a trainer, a loader.

A context variable, which tasks and ``asyncio.to_thread`` inherit; a thread of one's own takes the recorder from who starts it.
A run sets it for its stages. Code that is handed a recorder needs none of this.
"""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

from ._recorder import Recorder

_CURRENT: ContextVar[Recorder | None] = ContextVar("recorder", default=None)


def current_recorder() -> Recorder | None:
    """Where whoever asks may record; ``None`` where nobody records."""
    return _CURRENT.get()


@contextmanager
def recording(recorder: Recorder | None) -> Generator[None]:
    """Have what is called inside record there.

    Args:
        recorder: ``None`` leaves it as it is outside.
    """
    if recorder is None:
        yield
        return
    token = _CURRENT.set(recorder)
    try:
        yield
    finally:
        _CURRENT.reset(token)
