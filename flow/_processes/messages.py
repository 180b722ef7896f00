"""What a node and one of its processes say to each other: the headers of frames. What is in the body stands beside each.

``number`` counts the calls of one process. It is the fence: an answer to a call that was given up fits no later one.
"""

from typing import Any, Literal, SupportsIndex

import msgspec

GRACE_S = 1.0
"""Seconds an attempt has to clean up after a cancel, and a process to leave its stage once its parent is gone."""


class Message(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Base of all messages."""


class Error(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An exception on its way: see ``errors``."""

    pickled: bytes
    kind: str
    message: str
    trace: str


# --- to the process ---


class Setup(Message, frozen=True, tag=0):
    """The first words. Body: the stage and the types, pickled."""

    node: str
    arguments: list[str]
    main: dict[str, str]
    files: dict[str, str]


class Call(Message, frozen=True, tag=1):
    """Handle an item. Body: its value. The deadline is a time of the monotonic clock, which is one for the whole machine.

    ``heard``: whether somebody hears of spans, moments and counters.
    """

    number: int
    path: tuple[int, ...]
    birth: int
    member: int
    retry: int
    attempt: int
    version: int | None
    lag: int | None
    deadline_s: float | None
    heard: bool


class Cancel(Message, frozen=True, tag=2):
    """The call was given up."""

    number: int


class Granted(Message, frozen=True, tag=3):
    """The permit asked for is there."""

    ask: int


class Refused(Message, frozen=True, tag=4):
    """What was asked for raised."""

    ask: int
    error: Error


class Value(Message, frozen=True, tag=5):
    """The newest value of the cell. Body: the value, empty where the process knows this version."""

    ask: int
    version: int


class Close(Message, frozen=True, tag=6):
    """Leave the stage and end."""


# --- from the process ---


class Ready(Message, frozen=True, tag=10):
    """The stage is unpickled and entered."""


class Ended(Message, frozen=True, tag=11):
    """The last word: the stage could not be entered, or was left, in this error if there is one."""

    error: Error | None


class Done(Message, frozen=True, tag=12):
    """A call returned. Body: the value; of ``many``, the list of the values; of ``filtered``, nothing."""

    number: int
    outcome: Literal["plain", "many", "failed", "filtered"] = "plain"
    reason: str = ""
    detail: str = ""


class Raised(Message, frozen=True, tag=13):
    """A call raised."""

    number: int
    error: Error


class Ask(Message, frozen=True, tag=14):
    """A permit is wanted."""

    ask: int
    needs: dict[str, int]


class Return(Message, frozen=True, tag=15):
    """A permit is given back, or not waited for any more."""

    ask: int


class Read(Message, frozen=True, tag=16):
    """The cell is read by one who knows this version of it; -1 for none."""

    ask: int
    known: int


class Row(Message, frozen=True, tag=17):
    """A row of metrics."""

    row: dict[str, Any]


class Opened(Message, frozen=True, tag=18):
    """A span began, in a task or on a thread of the stage; ``strand`` is empty for the attempt itself."""

    call: int
    span: int
    strand: str
    name: str
    args: dict[str, Any]
    flows: tuple[int, ...]
    at_s: float


class Closed(Message, frozen=True, tag=19):
    """A span ended."""

    call: int
    span: int
    at_s: float


class Happened(Message, frozen=True, tag=20):
    """A moment, in a task or on a thread of the stage."""

    call: int
    strand: str
    name: str
    args: dict[str, Any]
    flows: tuple[int, ...]
    at_s: float


class Stands(Message, frozen=True, tag=21):
    """A counter has another value."""

    call: int
    name: str
    value: float
    unit: str
    at_s: float


class LeftOut(Message, frozen=True, tag=22):
    """So much was not shown: the attempt shows more than it may."""

    call: int
    count: int
    at_s: float


Shown = Opened | Closed | Happened | Stands | LeftOut
"""What a stage shows; see ``flow.elsewhere``. Times are of the monotonic clock."""
ToChild = Setup | Call | Cancel | Granted | Refused | Value | Close
FromChild = Ready | Ended | Done | Raised | Ask | Return | Read | Row | Shown

decode_in_child = msgspec.msgpack.Decoder(ToChild).decode
decode_from_child = msgspec.msgpack.Decoder(FromChild).decode


def encode(message: Message) -> bytes:
    """Write a header. What the details of spans and rows hold besides plain values is written as a number or as text."""
    return _ENCODER.encode(message)


def _plain(value: Any) -> Any:
    # Numbers of array libraries: their own classes are not known here, and may not be.
    try:
        return value.__index__() if isinstance(value, SupportsIndex) else float(value)
    except (TypeError, ValueError):
        return str(value)


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_plain)
