"""The rule of each status, and the page that tells it."""

import re
from pathlib import Path

from stages.records import STATUS_RULES, Status, StatusRule

PAGE = Path(__file__).parents[2] / "docs" / "status.md"


def told(status: Status, rule: StatusRule) -> list[str]:
    """A row of the page."""
    return [
        f"`{status}`",
        rule.meaning,
        rule.end,
        "scored" if rule.scored else "none",
        "yes" if rule.answers else "no",
        "counts" if rule.counts else "no part",
        "yes" if rule.trains else "no",
        "complete" if rule.completes else "the barrier's policy",
    ]


def test_the_page_and_the_code_have_the_same_rule_for_each_status():
    rows = [re.split(r" *\| *", line.strip("| ")) for line in PAGE.read_text().splitlines() if re.match(r"\| `\w+` \|", line)]
    assert [row for row in rows if len(row) == 8] == [told(status, STATUS_RULES[status]) for status in Status]


def test_terminated_truncated_and_failed_are_apart():
    """S42: an episode that was cut can be told from one that is over, and both from a failure."""
    ends = {end: {s.value for s in Status if s.rule.end == end} for end in ("terminated", "truncated", "failed")}
    assert ends == {
        "terminated": {"finished"},
        "truncated": {"truncated_length", "truncated_turns"},
        "failed": {"timed_out", "environment_error", "tool_error", "model_error", "cancelled"},
    }
