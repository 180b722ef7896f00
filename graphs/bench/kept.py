"""Findings as files: all that an experiment found, and all that is needed to judge it and to have it again.

``FOLDER/NAME.json`` is JSON as any reader takes it. A number that is not finite, for which JSON has no word, is
``{"$number": "nan"}``, so that it cannot be taken for text. What is read back is what was written; sequences are lists.
"""

import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from graphs.bench.experiment import Findings

_NUMBER = "$number"
_NOT_FINITE = {str(number): number for number in (math.nan, math.inf, -math.inf)}


class Machine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What findings were made on. Nothing in it names the host.

    Attributes:
        system: operating system and kind of processor.
        cores: that the process might use.
        memory_bytes: of the host, or what its container may have of it.
        backend: of JAX.
        device_kind: of JAX's devices, as the backend calls it.
        num_devices: of these, in the process of the experiment.
    """

    system: str
    cores: float
    memory_bytes: int
    backend: str
    device_kind: str
    num_devices: int


class Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was found, and how.

    Attributes:
        name: of the experiment.
        title: of it.
        question: of it, as it was when it was measured.
        command: that makes it again.
        short: whether its settings were the short ones.
        settings: all of them.
        date: at the begin, UTC, ISO 8601.
        seconds: it took.
        load: mean number of processes that wanted a core, over the minute before.
        load_after: the same over the last minute of it, its own included.
        machine: see ``Machine``.
        versions: of Python and packages, by name.
        holds: whether every claim came out as wanted.
        findings: what was found.
    """

    name: str
    title: str
    question: str
    command: str
    short: bool
    settings: dict[str, Any]
    date: str
    seconds: float
    load: float
    load_after: float
    machine: Machine
    versions: dict[str, str]
    holds: bool
    findings: Findings


def file_of(folder: Path, name: str) -> Path:
    """Where the findings of an experiment lie."""
    return folder / f"{name}.json"


def write_kept(folder: Path, kept: Kept) -> Path:
    """Write findings into a folder, whole or not at all, and give the file.

    Raises:
        TypeError: they hold something that JSON cannot.
        OSError: it cannot be written.
    """
    file = file_of(folder, kept.name)
    content = msgspec.json.format(as_line(kept), indent=1) + b"\n"
    folder.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(f".{os.getpid()}.part")
    try:
        part.write_bytes(content)
        return part.replace(file)
    finally:
        part.unlink(missing_ok=True)


def as_line(kept: Kept) -> bytes:
    """Findings as one line of JSON.

    Raises:
        TypeError: they hold something that JSON cannot.
    """
    return msgspec.json.encode(_named(msgspec.to_builtins(kept, enc_hook=_plain)))


def read_kept(file: Path) -> Kept:
    """Findings as they were.

    Raises:
        ValueError: the file holds something else.
        OSError: it cannot be read.
    """
    content = file.read_bytes()
    try:
        kept = msgspec.convert(_numbers(msgspec.json.decode(content)), Kept)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:  # what does not convert is a DecodeError too
        raise ValueError(
            f"expected findings as headrace bench keeps them, got something else ({error}), in {file}; take it out of the "
            "folder, or have them made again"
        ) from error
    if kept.name != file.stem:
        raise ValueError(f"expected findings of '{file.stem}', got those of '{kept.name}', in {file}; name it {kept.name}.json")
    return kept


def read_folder(folder: Path, order: Iterable[str] = ()) -> Sequence[Kept]:
    """All findings that lie in a folder.

    Args:
        folder: where each ``.json`` is one.
        order: names in the order in which they are wanted; the others follow by name.

    Raises:
        LookupError: there are none.
        ValueError: see ``read_kept``.
    """
    places = {name: place for place, name in enumerate(order)}
    if not folder.is_dir():
        raise LookupError(f"expected a folder of findings, got none at '{folder}'; headrace bench all --out {folder} makes one")
    found = [read_kept(file) for file in sorted(folder.glob("*.json"))]
    if not found:
        raise LookupError(f"expected findings, NAME.json, got none in '{folder}'; headrace bench all --out {folder} makes them")
    return sorted(found, key=lambda kept: (places.get(kept.name, len(places)), kept.name))


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"expected something JSON can hold, got {type(value).__name__}")


def _named(value: Any) -> Any:
    """Numbers that are not finite by their names."""
    if isinstance(value, float) and not math.isfinite(value):
        return {_NUMBER: str(value)}
    if isinstance(value, dict):
        if _NUMBER in value:
            raise TypeError(f"expected no key '{_NUMBER}', which numbers that are not finite have; got one; name it otherwise")
        return {key: _named(inner) for key, inner in value.items()}
    return [_named(inner) for inner in value] if isinstance(value, list | tuple) else value


def _numbers(value: Any) -> Any:
    """The same back."""
    if isinstance(value, dict):
        if value.keys() == {_NUMBER} and value[_NUMBER] in _NOT_FINITE:
            return _NOT_FINITE[value[_NUMBER]]
        return {key: _numbers(inner) for key, inner in value.items()}
    return [_numbers(inner) for inner in value] if isinstance(value, list) else value
