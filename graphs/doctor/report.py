"""Findings as text for people, in the width of their terminal, and as JSON for scripts."""

import json
import textwrap
from collections.abc import Sequence

from graphs.doctor.finding import Finding, Level, count, worst_first

_COLOURS: dict[Level, str] = {"fault": "\x1b[1;31m", "warning": "\x1b[33m", "ok": "\x1b[32m"}
_PLAIN = "\x1b[0m"
NARROWEST, WIDEST = 40, 110


def as_text(findings: Sequence[Finding], columns: int, *, colour: bool) -> str:
    """Findings, the worst first, and a last line that sums up.

    Args:
        findings: in the order they were made.
        columns: of the terminal.
        colour: whether to colour levels.
    """
    width = max(NARROWEST, min(columns, WIDEST))
    lines = [line for finding in worst_first(findings) for line in _lines(finding, width, colour=colour)]
    return "\n".join([*lines, "", summed_up(findings)])


def summed_up(findings: Sequence[Finding]) -> str:
    """One line: whether a run can work here."""
    faults, warnings = count(findings, "fault"), count(findings, "warning")
    also = f", {_number(warnings, 'warning')}" if warnings else ""
    return f"headrace can run here{also}" if not faults else f"{_number(faults, 'fault')} would stop a run{also}"


def as_json(findings: Sequence[Finding]) -> str:
    """One object: whether there are faults, and every finding, the worst first."""
    rows = [
        {"what": one.what, "level": one.level, "found": one.found, "remedy": one.remedy or None, "values": dict(one.values)}
        for one in worst_first(findings)
    ]
    counts = {"faults": count(findings, "fault"), "warnings": count(findings, "warning")}
    return json.dumps({**counts, "findings": rows}, indent=2)


def _number(many: int, what: str) -> str:
    return f"{many} {what}{'' if many == 1 else 's'}"


def _lines(finding: Finding, width: int, *, colour: bool) -> list[str]:
    level = f"{_COLOURS[finding.level]}{finding.level:<8}{_PLAIN}" if colour else f"{finding.level:<8}"
    indent = " " * 21
    body: list[str] = []
    for line in [*finding.found.splitlines(), *([f"to do: {finding.remedy}"] if finding.remedy else [])]:
        body += textwrap.wrap(line, width - len(indent), subsequent_indent="  ", break_on_hyphens=False) or [""]
    name = f"{finding.what:<12} " if len(finding.what) <= 12 else f"{finding.what}\n{indent}"
    return [f"{level}{name}{body[0]}", *(f"{indent}{line}" for line in body[1:])]
