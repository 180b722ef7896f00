"""What a journal is made of: records, each with its length and checksum before it, in files that are only ever appended to.

A file holds good records up to the first that is torn or damaged; nothing behind that is believed. Values are bytes here, as
the codec of their node wrote them, so that a journal can be read without the graph.
"""

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import msgspec

ItemPath: TypeAlias = tuple[int, ...]
Key: TypeAlias = tuple[str, str, ItemPath, int]
"""(graph, node, path, retry): what an attempt is at."""
Outcome: TypeAlias = Literal["plain", "failed", "many", "filtered", "dropped", "retried"]
"""``plain``: one value. ``failed``: one value that is marked. ``many``: any number. ``filtered``: none, on purpose.
``dropped``: none, given up for an error. ``retried``: none, an error after which the item is tried again."""

MAGIC = b"journal1"
_HEAD = struct.Struct("<II")
_MOST_BYTES = 2**31


class Opened(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """A process began to write.

    Attributes:
        after: number of the commit it goes on from; 0 from the beginning. What came after that commit comes again.
    """

    after: int


class Cut(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """The moment of a commit was taken here. Whether the commit came to be is not known.

    Attributes:
        number: of the commit.
        since: number of the oldest file that one who goes on from it has to read.
        trails: by graph and cell, and version, what the version was made of.
        parts: by graph and cell, and birth, what a group that is on its way is made of so far.
    """

    number: int
    since: int
    trails: dict[str, dict[int, int]] = {}
    parts: dict[str, dict[int, int]] = {}


class Begun(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """An attempt began: code of the user runs from here on, with effects outside."""

    graph: str
    node: str
    path: ItemPath
    retry: int
    attempt: int

    @property
    def key(self) -> Key:
        """What it is at."""
        return (self.graph, self.node, self.path, self.retry)


class Made(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """An attempt came to its end.

    Attributes:
        graph: name of the graph.
        node: name of the stage.
        path: of its item.
        retry: recorded failures of the item before.
        birth: of the item.
        member: of the item.
        attempt: executions of this retry before.
        before: version that the item came with.
        seen: version of the cell that the stage reads; ``None`` where it reads none.
        version: the version that what was made is stamped with.
        trails: what the versions ``seen`` and ``before`` were made of, where that is known.
        outcome: what came of it.
        reason: one of few words, of what is no plain value.
        detail: one line for people.
        values: as the codec of the stage wrote them.
    """

    graph: str
    node: str
    path: ItemPath
    retry: int
    birth: int
    member: int | None
    attempt: int
    before: int | None
    seen: int | None
    version: int | None
    trails: tuple[int | None, int | None]
    outcome: Outcome
    reason: str
    detail: str
    values: tuple[bytes, ...]

    @property
    def key(self) -> Key:
        """What it is of."""
        return (self.graph, self.node, self.path, self.retry)


class Step(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """A sink completed a step. Only where all is recorded.

    Attributes:
        graph: name of the graph.
        sink: name of the sink.
        number: of the step, from 1.
        items: (path, birth, version) of what it took, in the order in which it did.
    """

    graph: str
    sink: str
    number: int
    items: tuple[tuple[ItemPath, int, int | None], ...]


class Digest(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """What a sink was like after a step, see ``Digested``. Only where all is recorded.

    Attributes:
        graph: name of the graph.
        sink: name of the sink.
        number: of the step, from 1.
        digest: as the sink gave it.
    """

    graph: str
    sink: str
    number: int
    digest: str


class Forgiven(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """A graph ended in an error: failures before this are tried again by whoever goes on, since their cause may be gone."""

    graph: str


Record: TypeAlias = Opened | Cut | Begun | Made | Step | Digest | Forgiven
_decode = msgspec.msgpack.Decoder(Record).decode
_encode = msgspec.msgpack.Encoder().encode


class Placed(NamedTuple):
    """A record and where it lies: it begins, head included, at ``start`` and ends before ``end``, in bytes."""

    record: Record
    start: int
    end: int


def frame(record: Record) -> bytes:
    """A record as it is appended."""
    body = _encode(record)
    return _HEAD.pack(len(body), zlib.crc32(body)) + body


def unframe(content: bytes) -> Record:
    """The record of a frame.

    Raises:
        ValueError: it is torn or damaged.
    """
    if len(content) < _HEAD.size:
        raise ValueError("its head is cut short")
    length, checksum = _HEAD.unpack_from(content)
    body = memoryview(content)[_HEAD.size :]
    if length != len(body):
        raise ValueError("it is cut short")
    if zlib.crc32(body) != checksum:
        raise ValueError("its checksum is another")
    return _decode(body)  # a DecodeError is a ValueError


def read_file(path: Path, told: list[str]) -> Iterator[Placed]:
    """The good records of a file, in order.

    Args:
        path: the file.
        told: gets a line where something is wrong with it.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        if (magic := file.read(len(MAGIC))) != MAGIC:
            if magic and not MAGIC.startswith(magic):
                told.append(f"{path}: expected a journal of format {MAGIC.decode()}, got another; nothing of it is used")
            return
        start = len(MAGIC)
        while head := file.read(_HEAD.size):
            length = _HEAD.unpack(head)[0] if len(head) == _HEAD.size else 0
            content = head + file.read(length) if 0 < length < _MOST_BYTES else head
            try:
                record = unframe(content)
            except ValueError as error:
                told.append(f"{path}: expected a whole record at byte {start}, got another ({error}); what follows is not used")
                return
            yield Placed(record, start, start + len(content))
            start += len(content)
