"""Rules of alerts: how they are written, and what a rule makes of one number after another. No files, no time.

``NAME>2``, ``NAME<=0.1``, ``NAME rising``, ``NAME falling`` or ``NAME not-finite``, each with ``for N`` behind it where it must
hold in N rows in a row. NAME is a metric of docs/metrics.md.
"""

import difflib
import math
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from graphs.runs.metrics import JUDGED, METRICS, find

DEFAULTS: tuple[str, ...] = (
    "loss not-finite",
    "failed_share>0.5 for 6",
    "truncated_share>0.9 for 30",
    "no_signal_groups>0.95 for 5",
    "ready_groups rising for 30",
    "half_filled_groups rising for 30",
    "oldest_group_s>3600",
    "host_memory_share>0.9 for 3",
    "loop_lag_ms>1000 for 6",
)
"""What is watched where nothing else is asked: what is wrong in every run, and long enough to be no accident."""
_FORM = re.compile(
    r"\s*(?P<name>[\w@/.:-]+?)\s*(?:(?P<sign>>=|<=|>|<)\s*(?P<bound>\S+)|\s(?P<word>rising|falling|not-finite))"
    r"(?:\s+for\s+(?P<times>\S+))?\s*"
)
_SIGNS: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le,
}  # fmt: skip
_CALM = 3
"""Rows in a row in which a rule must not hold, at least, before it is over: a figure at its bound is no news twice."""


@dataclass(frozen=True)
class Rule:
    """One rule.

    Attributes:
        text: as it was written.
        metric: name.
        word: a sign, ``rising``, ``falling`` or ``not-finite``.
        bound: behind the sign.
        times: rows in a row in which it must hold.
    """

    text: str
    metric: str
    word: str
    bound: float = 0.0
    times: int = 1

    def holds(self, value: float, before: float | None) -> bool:
        """Whether it holds for a number, after another. What is not a number is above and below nothing."""
        if self.word == "not-finite":
            return not math.isfinite(value)
        if self.word in ("rising", "falling"):
            return before is not None and (value > before if self.word == "rising" else value < before)
        return _SIGNS[self.word](value, self.bound)


@dataclass
class Course:
    """How a rule fares with the rows of one stage: raised once, and over once, see ``see``."""

    rule: Rule
    raised: bool = False
    _held: int = field(default=0, repr=False)
    _calm: int = field(default=0, repr=False)
    _before: float | None = field(default=None, repr=False)

    def see(self, value: float) -> str | None:
        """Take in the next number: gives ``raised`` or ``cleared`` where that changes, else ``None``.

        It is raised where the rule held in as many rows in a row as it says, and cleared where it did not in as many, or 3.
        """
        holds = self.rule.holds(value, self._before)
        self._before = value
        self._held, self._calm = (self._held + 1, 0) if holds else (0, self._calm + 1)
        if not self.raised and self._held >= self.rule.times:
            self.raised = True
            return "raised"
        if self.raised and self._calm >= max(self.rule.times, _CALM):
            self.raised = False
            return "cleared"
        return None


def read_rules(texts: Sequence[str], *, own: bool = False) -> tuple[Rule, ...]:
    """Read rules.

    Args:
        texts: one for each.
        own: whether stages of the user's own may report metrics that are in no list.

    Raises:
        ValueError: naming all that cannot be read, and the nearest metric of one that is not known.
    """
    rules: list[Rule] = []
    faults: list[str] = []
    for text in texts:
        try:
            rules.append(_read(text, own=own))
        except ValueError as fault:
            faults.append(str(fault))
    if faults:
        raise ValueError("\n".join(faults))
    return tuple(rules)


def _read(text: str, *, own: bool) -> Rule:
    form = _FORM.fullmatch(text)
    if form is None:
        raise ValueError(
            "expected a rule such as 'lag_mean>2', 'truncated_share>0.3 for 3' or 'ready_groups rising for 10', got "
            f"'{text}', in --options.alerts; quote it, with one sign"
        )
    name, sign = form["name"], form["sign"]
    metric = find(name, JUDGED)
    if metric is None and not own:
        near = difflib.get_close_matches(name, [each.name for each in METRICS if each.row in JUDGED], 1, cutoff=0.4)
        hint = f"did you mean '{near[0]}'?" if near else "docs/metrics.md lists them"
        raise ValueError(
            f"expected a metric of a step, an evaluation or health, got '{name}', in --options.alerts '{text}'; {hint}"
        )
    if metric is not None and metric.unit == "text":
        raise ValueError(
            f"expected a metric that is a number, got '{name}', in --options.alerts '{text}'; docs/metrics.md tells"
        )
    return Rule(text.strip(), name, sign or form["word"], _bound(form["bound"], text), _times(form["times"], text))


def _bound(given: str | None, text: str) -> float:
    try:
        bound = float(given or 0.0)
    except ValueError:
        bound = math.nan
    if not math.isfinite(bound):
        raise ValueError(
            f"expected a number behind the sign, got '{given}', in --options.alerts '{text}'; write it as 0.3 or 2e4"
        )
    return bound


def _times(given: str | None, text: str) -> int:
    if given is None:
        return 1
    if not given.isdecimal() or int(given) < 1:
        raise ValueError(f"expected a number of rows from 1, got '{given}', in --options.alerts '{text}'; write it as 'for 3'")
    return int(given)
