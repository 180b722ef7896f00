"""What a compiled program moves between devices, as XLA says: read from its text. Computes and moves nothing.

Bytes are those that each device receives with the ring algorithm, as XLA's own cost models count them: of what is gathered, all
but its own part; of what is reduced, twice all but its own part, once where only its part is wanted.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_KINDS = "all-gather|all-reduce|reduce-scatter|all-to-all|ragged-all-to-all|collective-broadcast|collective-permute"
_CALL = re.compile(rf"^\s*(?:ROOT )?%\S+ = (?P<gives>.+?) (?P<kind>{_KINDS})(?P<start>-start)?\(")
_ARRAY = re.compile(r"\b(?P<type>pred|bf16|f8\w*|[suf]\d+|c64|c128)\[(?P<sizes>[\d,]*)\]")
_MESH = re.compile(r"replica_groups=mesh\[(?P<sizes>[^\]]*)\] \{(?P<over>[^}]*)\}")
_IOTA = re.compile(r"replica_groups=\[(?P<sizes>[\d,]+)\]<=")
_LISTED = re.compile(r"replica_groups=\{\{(?P<first>[\d,]+)\}")
_COMPUTATION = re.compile(r"^(?P<entry>ENTRY )?%\S+ .*\{$")


@dataclass(frozen=True)
class Collectives:
    """Of one program, in one call.

    Attributes:
        num: of each kind.
        received_bytes: that each device receives.
        num_nested: of them, those in a loop or a branch; they are counted once, however often they are made.
    """

    num: Mapping[str, int]
    received_bytes: int
    num_nested: int


def collectives_of(program: Any) -> Collectives:
    """What a compiled program moves between devices.

    Args:
        program: compiled by ``jax.jit(...).lower(...).compile()``.

    Raises:
        ValueError: its text has a collective that is not understood.
    """
    return read_collectives(program.as_text())


def read_collectives(text: str) -> Collectives:
    """The same of its text.

    Raises:
        ValueError: it has a collective that is not understood.
    """
    num: Counter[str] = Counter()
    received, nested = 0.0, 0
    for is_entry, line in _lines(text):
        call = _CALL.match(line)
        if call is None:
            continue
        size = _size_of_groups(line) if call["kind"] != "collective-permute" else 2
        received += _received(call["kind"], _given(call), size)
        num[call["kind"]] += 1
        nested += not is_entry
    return Collectives(dict(num), round(received), nested)


def _lines(text: str) -> Iterator[tuple[bool, str]]:
    """Whether it is one of the entry computation, and the line."""
    is_entry = False
    for line in text.splitlines():
        begins = _COMPUTATION.match(line)
        if begins is not None:
            is_entry = begins["entry"] is not None
        else:
            yield is_entry, line


def _given(call: "re.Match[str]") -> int:
    """Bytes of what a collective gives on each device."""
    arrays = [_bytes(found["type"], found["sizes"]) for found in _ARRAY.finditer(call["gives"])]
    if call["start"] and call["kind"] == "all-gather":
        arrays = arrays[len(arrays) // 2 :]  # it gives what it was given as well
    elif call["start"] and call["kind"] == "collective-permute":
        arrays = arrays[1:2]
    return sum(arrays)


def _bytes(kind: str, sizes: str) -> int:
    bits = {"pred": 8, "c64": 64, "c128": 128}.get(kind) or int(re.findall(r"\d+", kind)[0])
    return math.prod(_numbers(sizes)) * bits // 8


def _received(kind: str, given_bytes: int, size: int) -> float:
    others = (size - 1) / size
    if kind == "all-reduce":
        return 2 * given_bytes * others
    if kind == "reduce-scatter":
        return given_bytes * (size - 1)
    if kind in ("collective-permute", "collective-broadcast"):
        return given_bytes
    return given_bytes * others


def _size_of_groups(line: str) -> int:
    """Devices that take part in one collective."""
    if found := _MESH.search(line):
        sizes = {name: int(size) for name, size in re.findall(r"'([^']+)'=(\d+)", found["sizes"])}
        return math.prod(sizes[name] for name in re.findall(r"'([^']+)'", found["over"]))
    if found := _IOTA.search(line):
        return _numbers(found["sizes"])[-1]
    if found := _LISTED.search(line):
        return len(_numbers(found["first"]))
    raise ValueError(
        f"expected a collective whose devices are told, got '{line.strip()[:200]}', in the text of a compiled program; teach "
        "graphs/bench/topology/collectives.py this form of replica_groups"
    )


def _numbers(text: str) -> Sequence[int]:
    return [int(number) for number in text.split(",") if number]
