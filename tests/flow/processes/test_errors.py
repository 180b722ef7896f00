"""Exceptions leave a process with their class and message, or as a stand-in that names both."""

import process_stages
import pytest

from flow import DeadlineExceeded, StageFailed
from flow._errors import RaisedElsewhere
from flow._processes.errors import pack, unpack


def raised(error: BaseException) -> BaseException:
    """What comes out of a process for an exception that was raised in one."""
    try:
        raise error
    except type(error) as caught:
        return unpack(pack(caught), "in a process of 'node'")


@pytest.mark.parametrize(
    "error",
    [
        ValueError("odd", 3),
        KeyError("name"),
        FileNotFoundError(2, "not there", "file"),
        UnicodeDecodeError("ascii", b"\xff", 0, 1, "no"),
        ExceptionGroup("two", [ValueError("a"), TypeError("b")]),
        process_stages.Odd(7, "seven"),
        DeadlineExceeded("stage", 3.0),
        StageFailed("stage", (1, 2), 0, 0, ValueError("odd")),
    ],
)
def test_an_exception_keeps_its_class_message_and_attributes(error):
    copy = raised(error)
    assert (type(copy), str(copy), str(copy.args)) == (type(error), str(error), str(error.args))
    assert {name: str(value) for name, value in vars(error).items()}.items() <= {
        n: str(v) for n, v in vars(copy).items()
    }.items()
    assert copy.__notes__[-1].startswith("raised in a process of 'node':\n")
    assert "raise error" in copy.__notes__[-1]


def test_an_exception_that_cannot_be_pickled_is_named_by_a_stand_in():
    copy = raised(process_stages.Hidden("no way out"))
    assert isinstance(copy, RaisedElsewhere)
    assert (copy.kind, str(copy)) == ("Hidden", "Hidden: no way out")
    assert "process_stages.Hidden: no way out" in copy.__notes__[-1]


def test_the_cause_stands_in_the_note():
    try:
        try:
            raise OSError("no device")
        except OSError as cause:
            raise ValueError("odd") from cause
    except ValueError as error:
        copy = unpack(pack(error), "there")
    assert "OSError: no device" in copy.__notes__[-1]


def test_an_exception_without_a_readable_message_still_leaves():
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    copy = raised(Mute())
    assert isinstance(copy, RaisedElsewhere)
    assert str(copy) == "Mute: (no message: its own __str__ raised)"
