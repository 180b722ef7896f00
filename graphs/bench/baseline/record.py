"""The record that the baseline is compared with: what of it must be equal, and what within rounding. No training here.

**Equal** is what is chosen and counted: texts, token ids, masks, names of groups and members, statuses, rewards, versions,
what was trained in which order, and every count. **Within rounding** is what a machine computes in float32: log-probabilities,
advantages, losses, norms. XLA orders their sums as suits the processor, so their last bits differ from one to another.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from graphs.bench.baseline.observed import EpisodeRecord, RunRecord, StepRecord

FILE = Path(__file__).parents[1] / "records" / "baseline.json"
"""Where it is committed."""
COMMAND = "python -m graphs.bench.baseline.write"
"""What writes it anew."""
ROUNDED = ("advantages", "logprobs", "figures")
"""Fields that a machine computes in float32."""


@dataclass(frozen=True)
class Difference:
    """One field of all episodes, or of all steps, of the record and of a run.

    Attributes:
        of: ``episode`` or ``step``.
        field: its name.
        rounded: whether it is to be equal within rounding only.
        compared: values of it, and of the rest.
        different: values that are not equal.
        largest: difference of two numbers, relative where they are above 1; ``None`` where they are no numbers that can be
            compared.
    """

    of: str
    field: str
    rounded: bool
    compared: int
    different: int
    largest: float | None


def read_record(path: Path = FILE) -> dict[str, RunRecord]:
    """What is committed, by kind.

    Raises:
        FileNotFoundError: it is not there.
        ValueError: it was written by another version.
    """
    if not path.exists():
        raise FileNotFoundError(f"expected the record of the baseline, got no {path}; write it with {COMMAND}")
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, RunRecord])
    except msgspec.DecodeError as error:
        raise ValueError(f"expected the record of the baseline, got {path}, where {error}; write it with {COMMAND}") from error


def write_record(records: Mapping[str, RunRecord], path: Path = FILE) -> None:
    """Write it, an episode a line, so that a change can be read."""
    parts = [f"{_json(kind)}: {{\n{_runs(record)}\n}}" for kind, record in records.items()]
    path.write_text("{" + ",\n".join(parts) + "}\n")


def differences(stored: RunRecord, now: RunRecord) -> list[Difference]:
    """Field by field, where a run is not as the record has it. Episodes and steps that one of them lacks differ in all."""
    return [
        *_of("episode", EpisodeRecord, stored.episodes, now.episodes),
        *_of("step", StepRecord, stored.steps, now.steps),
    ]


def _of(of: str, kind: type[msgspec.Struct], stored: list[Any], now: list[Any]) -> Iterator[Difference]:
    pairs = list(itertools.zip_longest(stored, now))
    for field in kind.__struct_fields__:
        values = [(getattr(one, field, None), getattr(other, field, None)) for one, other in pairs]
        unlike = sum(one != other for one, other in values)
        apart = [_apart(one, other) for one, other in values] if field in ROUNDED else [None]
        largest = None if None in apart else max((each for each in apart if each is not None), default=0.0)
        yield Difference(of, field, field in ROUNDED, len(values), unlike, largest)


def _apart(one: Any, other: Any) -> float | None:
    """Largest difference of two lists or tables of numbers; ``None`` where they have not the same places."""
    if isinstance(one, dict) and isinstance(other, dict):
        names = sorted({*one, *other})
        one, other = [one.get(name) for name in names], [other.get(name) for name in names]
    if one is None or other is None or len(one) != len(other) or None in [*one, *other]:
        return None
    return max((abs(a - b) / max(1.0, abs(a)) for a, b in zip(one, other, strict=True)), default=0.0)


def _runs(record: RunRecord) -> str:
    return ",\n".join(
        f"{_json(name)}: [\n" + ",\n".join(map(_json, rows)) + "\n]"
        for name, rows in (("episodes", record.episodes), ("steps", record.steps))
    )


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
