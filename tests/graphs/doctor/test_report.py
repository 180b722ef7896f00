"""Findings are told the worst first, in eighty columns, and plain where nobody looks."""

import json

from graphs.doctor.finding import Finding
from graphs.doctor.report import as_json, as_text

FINDINGS = [
    Finding("memory", "ok", "20 GiB free", values={"free_bytes": 1}),
    Finding("cores", "warning", "one of two " * 12, "allow the process more"),
    Finding("a long variable", "fault", "expected this\ngot that", "mend it"),
]


def test_faults_come_first_and_every_line_fits() -> None:
    told = as_text(FINDINGS, 80, colour=False)
    assert [line.split()[0] for line in told.splitlines() if line[:1].isalpha()] == ["fault", "warning", "ok"]
    assert max(map(len, told.splitlines())) <= 80
    assert "\x1b" not in told
    assert told.splitlines()[-1] == "1 fault would stop a run, 1 warning"
    assert "to do: mend it" in told


def test_colours_change_nothing_but_colours() -> None:
    plain, coloured = (as_text(FINDINGS, 80, colour=colour) for colour in (False, True))
    for code in ("\x1b[1;31m", "\x1b[33m", "\x1b[32m", "\x1b[0m"):
        assert code in coloured
        coloured = coloured.replace(code, "")
    assert coloured == plain


def test_json_has_what_the_text_has() -> None:
    told = json.loads(as_json(FINDINGS))
    assert (told["faults"], told["warnings"]) == (1, 1)
    assert told["findings"][0] == {
        "what": "a long variable", "level": "fault", "found": "expected this\ngot that", "remedy": "mend it", "values": {}
    }  # fmt: skip
    assert told["findings"][-1]["remedy"] is None
