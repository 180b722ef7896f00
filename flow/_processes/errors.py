"""Exceptions on their way out of a process: the same class with the same message where that can be had, else a stand-in."""

import pickle
import traceback
from typing import Any, cast

from .._errors import RaisedElsewhere
from .messages import Error


def pack(error: BaseException, *, skip: int = 0) -> Error:
    """Make an exception ready to travel.

    Args:
        error: the exception.
        skip: frames of its traceback that are ours, not the user's.
    """
    frames = error.__traceback__
    for _ in range(skip):
        frames = frames.tb_next if frames is not None and frames.tb_next is not None else frames
    trace = "".join(traceback.format_exception(type(error), error, frames))
    return Error(_pickled(error), type(error).__name__, _text(error), trace)


def unpack(packed: Error, place: str) -> BaseException:
    """Give an exception to raise; the traceback it had in its process is a note on it."""
    error = _restored(packed.pickled) if packed.pickled else None
    if error is None:
        error = RaisedElsewhere(packed.kind, packed.message)
    error.add_note(f"raised {place}:\n{packed.trace}")
    return error


def _pickled(error: BaseException) -> bytes:
    """The first form that comes back as it was, empty if none does."""
    for form in (error, (type(error), error.args, error.__dict__)):
        try:
            pickled = pickle.dumps(form)
        except Exception:  # it runs user code, which may raise anything; the next form may do
            continue
        copy = _restored(pickled)
        if type(copy) is type(error) and _text(copy) == _text(error):
            return pickled
    return b""


def _restored(pickled: bytes) -> BaseException | None:
    """The exception, or ``None`` where this process cannot make it."""
    try:
        form: Any = pickle.loads(pickled)
        if isinstance(form, BaseException):
            return form
        # A class whose arguments are not those of its exceptions cannot be called again, but need not be.
        kind, args, attributes = cast("tuple[type[BaseException], tuple[Any, ...], dict[str, Any]]", form)
        error = kind.__new__(kind, *args)
        error.args = args
        error.__dict__.update(attributes)
        return error
    except Exception:
        return None


def _text(error: BaseException | None) -> str:
    try:
        return str(error)
    except Exception:
        return "(no message: its own __str__ raised)"
