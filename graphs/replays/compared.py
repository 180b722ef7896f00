"""The steps of a run beside the same steps made again: what each says, and where they differ first. No training, no journal."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from graphs.runs.folder import METRICS
from graphs.runs.json_rows import encode
from stages.train.metrics import StepRow, of_the_machine

_OF_FILES = ("warning", "bad_steps")
"""What a row tells of files in the run's folder."""
_FIRST = ("loss", "grad_norm")
DIGEST = "parameters"
"""Name of the digest of the parameters among what is compared."""


def rows_of(run: Path) -> dict[tuple[str, int], Mapping[str, Any]]:
    """The rows of a run's trainers, by phase and number of the step; empty where it wrote none."""
    found: dict[tuple[str, int], Mapping[str, Any]] = {}
    file = run / METRICS
    for line in file.read_bytes().splitlines() if file.exists() else ():
        try:
            row = msgspec.json.decode(line, type=dict[str, Any])
        except msgspec.DecodeError:  # the last one, torn
            continue
        if row.get("stage") == "trainer" and "step" in row:
            found[row["phase"], row["step"]] = row
    return found


@dataclass(frozen=True)
class Difference:
    """A figure that is not as it was.

    Attributes:
        name: of the figure.
        before: in the run.
        now: made again.
    """

    name: str
    before: Any
    now: Any

    def __str__(self) -> str:
        return f"{self.name} was {_text(self.before)} and is {_text(self.now)}"


class Compared:
    """Compares the steps of one phase as they are made again.

    Args:
        phase: its name.
        rows: of the run, see ``rows_of``.

    Attributes:
        num_steps: compared with a row or a digest of the run.
        num_digests: of these, steps whose parameters were compared to the bit.
        num_unknown: steps of which the run has neither.
        num_different: steps that differ.
    """

    def __init__(self, phase: str, rows: Mapping[tuple[str, int], Mapping[str, Any]]) -> None:
        self._phase, self._rows = phase, rows
        self.num_steps = self.num_digests = self.num_unknown = self.num_different = 0

    def step(self, row: StepRow, digest: tuple[str | None, str | None] = (None, None)) -> str:
        """Compare a step.

        Args:
            row: of the trainer, made again.
            digest: of the parameters, (in the run, now); ``None`` where it is not known.

        Returns:
            One line for people.
        """
        number = row["step"]
        assert isinstance(number, int)
        before = self._rows.get((self._phase, number))
        known = before is not None or None not in digest
        found = list(self._differences({} if before is None else before, row, digest))
        self.num_steps += known
        self.num_unknown += not known
        self.num_digests += None not in digest
        self.num_different += bool(found)
        verdict = "; ".join(map(str, found[:1])) + (f", and {len(found) - 1} more" if found[1:] else "")
        figures = [f"{name.replace('_', ' ')} {_text(row[name])}" for name in _FIRST]
        figures += [] if digest[1] is None else [f"{DIGEST} {digest[1]}"]
        return f"{self._phase} step {number}: {', '.join(figures)}: {verdict or ('equal' if known else 'not in the run')}"

    @property
    def equal(self) -> bool:
        """Whether something was compared, and nothing differs."""
        return self.num_steps > 0 and self.num_different == 0

    def report(self) -> str:
        """All of it in a line, for people."""
        bits = f", {self.num_digests} of them to the bit of every parameter" if self.num_digests else ""
        told = f"{self._phase}: steps compared in every figure: {self.num_steps}{bits}"
        rest = f", not in the run: {self.num_unknown}" if self.num_unknown else ""
        return f"{told}, different: {self.num_different or 'none'}{rest}"

    def _differences(
        self, before: Mapping[str, Any], row: StepRow, digest: tuple[str | None, str | None]
    ) -> Iterator[Difference]:
        now = msgspec.json.decode(encode(row), type=dict[str, Any])
        for name in dict.fromkeys([*_FIRST, *now]):
            if name in before and not of_the_machine(name) and name not in _OF_FILES and before[name] != now[name]:
                yield Difference(name, before[name], now[name])
        if None not in digest and digest[0] != digest[1]:
            yield Difference(DIGEST, *digest)


def _text(value: Any) -> str:
    """With all its digits."""
    return "none" if value is None else repr(value) if isinstance(value, float) else str(value)
