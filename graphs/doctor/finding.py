"""What was looked at, what was found, and what to do about it. How it is shown is in ``report.py``."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Level = Literal["fault", "warning", "ok"]
LEVELS: Sequence[Level] = ("fault", "warning", "ok")
"""In the order in which they are told. A fault would stop a run, a warning would make one slow, small or hard to read."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        what: its name, two words at most.
        level: how bad it is.
        found: in words; may have several lines.
        remedy: what to do; empty where nothing is to be done.
        values: the same for scripts, plain values only.
    """

    what: str
    level: Level
    found: str
    remedy: str = ""
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Faults, then warnings, then the rest, each in the order they were found."""
    return sorted(findings, key=lambda finding: LEVELS.index(finding.level))


def count(findings: Iterable[Finding], level: Level) -> int:
    """How many are of a level."""
    return sum(finding.level == level for finding in findings)
