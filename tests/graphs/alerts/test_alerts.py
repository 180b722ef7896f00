"""What an alert tells, and to whom."""

from collections.abc import Mapping
from typing import Any

from graphs.alerts.alerts import Alerts
from graphs.alerts.rules import read_rules


class Heard:
    def __init__(self, *rules: str) -> None:
        self.rows: list[tuple[str, Mapping[str, Any]]] = []
        self.marks: list[tuple[str, dict[str, Any]]] = []
        self.sent: list[Mapping[str, Any]] = []
        self.alerts = Alerts(read_rules(rules), self._tell, lambda name, args: self.marks.append((name, args)), self)

    def _tell(self, stage: str, row: Mapping[str, Any]) -> None:
        self.rows.append((stage, row))
        self.alerts.hear({"stage": stage, "phase": "rl", **row})  # as a folder does

    def send(self, alert: Mapping[str, Any]) -> None:
        self.sent.append(alert)

    def hear(self, **row: Any) -> None:
        self.alerts.hear({"phase": "rl", "stage": "trainer", "time": "now", "attempt": 0, **row})


def test_a_broken_rule_is_a_row_a_moment_in_the_trace_and_sent_once() -> None:
    heard = Heard("lag_mean>2")
    for lag in (3.0, 3.0, None, 1.0, 1.0, 1.0):
        heard.hear(lag_mean=lag, step=7)
    alert = {"alert": "lag_mean>2", "metric": "lag_mean", "value": 3.0, "of_stage": "trainer"}
    assert heard.rows == [("alerts", {**alert, "state": "raised"}), ("alerts", {**alert, "state": "cleared", "value": 1.0})]
    assert [args["state"] for name, args in heard.marks] == ["raised", "cleared"]
    assert heard.sent[0] == {"time": "now", "attempt": 0, "phase": "rl", "step": 7, **alert, "state": "raised"}
    assert len(heard.sent) == 2


def test_rows_of_different_stages_and_phases_do_not_add_up() -> None:
    heard = Heard("lag_mean>2 for 2")
    heard.hear(lag_mean=3.0)
    heard.hear(lag_mean=3.0, stage="other")
    heard.hear(lag_mean=3.0, phase="warm_start")
    assert heard.rows == []


def test_a_rule_about_the_value_of_alerts_hears_none_of_its_own() -> None:
    heard = Heard("goodput<0.5")
    heard.hear(goodput=0.1)
    assert len(heard.rows) == 1
