"""Judges the rows of a run by rules, and tells once when one is broken and once when that is over.

It tells a row of metrics, which the view and loggers see like any other, a moment in the trace, and the hooks.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from graphs.alerts.rules import Course, Rule
from graphs.runs.metrics import ALERTS, numbers


class Sends(Protocol):
    """Somebody who is sent alerts, as ``Hooks``."""

    def send(self, alert: Mapping[str, Any]) -> None:
        """Send one."""
        ...


class Alerts:
    """Judges one row after another.

    Args:
        rules: what is watched.
        tell: writes a row of metrics in the name of a stage.
        mark: puts a moment into the trace.
        hooks: sends alerts.
    """

    def __init__(
        self,
        rules: Sequence[Rule],
        tell: Callable[[str, Mapping[str, Any]], None],
        mark: Callable[[str, dict[str, Any]], None],
        hooks: Sends,
    ) -> None:
        self._tell, self._mark, self._hooks = tell, mark, hooks
        self._rules: dict[str, list[Rule]] = {}
        for rule in rules:
            self._rules.setdefault(rule.metric, []).append(rule)
        self._courses: dict[tuple[str, str, str], Course] = {}

    def hear(self, row: Mapping[str, Any]) -> None:
        """Judge a row as it was written. A figure that was not measured is neither good nor bad."""
        if row["stage"] == ALERTS:
            return
        for name, value in numbers(row):
            for rule in self._rules.get(name, ()):
                course = self._courses.setdefault((row["phase"], row["stage"], rule.text), Course(rule))
                state = course.see(value)
                if state is not None:
                    self._say(rule, state, value, row)

    def unjudged(self) -> Sequence[str]:
        """Rules whose metric no row had so far, as they were written: misspelt perhaps, or of another kind of program."""
        judged = {text for _, _, text in self._courses}
        return [rule.text for rules in self._rules.values() for rule in rules if rule.text not in judged]

    def _say(self, rule: Rule, state: str, value: float, row: Mapping[str, Any]) -> None:
        alert: dict[str, Any] = {
            "alert": rule.text,
            "state": state,
            "metric": rule.metric,
            "value": value,
            "of_stage": row["stage"],
        }
        self._tell(ALERTS, alert)
        self._mark("alert", {name: str(part) for name, part in alert.items()})
        place = {name: row[name] for name in ("time", "attempt", "phase", "run", "step", "version") if name in row}
        self._hooks.send({**place, **alert})
