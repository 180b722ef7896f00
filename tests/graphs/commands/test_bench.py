"""What ``headrace bench`` tells and keeps of an experiment; what experiments find is tested beside them."""

import json
from pathlib import Path

import pytest
from pydantic import BaseModel

from graphs.bench.experiment import Claim, Column, Experiment, Findings, Table, Tell
from graphs.cli import main
from graphs.commands import bench


class Config(BaseModel):
    """Of a sum."""

    most: int = 10
    """Numbers below this are summed."""


def add_up(config: Config, tell: Tell) -> Findings:
    total = 0
    for number in range(config.most):
        tell(number, config.most, "adding")
        total += number
    rows = [{"most": config.most, "total": total, "share": total / 100, "none": None}]
    columns = [
        Column("most", "below"),
        Column("total", "sum", "apples"),
        Column("share", "of 100", "share"),
        Column("none", "no"),
    ]
    claims = [Claim("sum (apples)", total, 40), Claim("sum again", total, sum(range(config.most)), "equal")]
    return Findings(f"The sum is {total}.", claims, [Table("sums", columns, rows)], notes=["It was added up."])


@pytest.fixture(autouse=True)
def adding(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    experiment = Experiment("adding", "Adding up", "What is the sum?", Config, Config(most=3), add_up)
    monkeypatch.setattr(bench, "EXPERIMENTS", {"adding": experiment})
    monkeypatch.chdir(tmp_path)


def status(*arguments: str) -> int:
    try:
        main(["bench", *arguments])
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def test_without_a_name_it_lists_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert status() == 0
    assert "adding  Adding up" in capsys.readouterr().out


def test_what_was_found_is_told_and_kept(capsys: pytest.CaptureFixture[str]) -> None:
    assert status("adding") == 0
    out = capsys.readouterr().out
    assert "The sum is 45." in out
    assert "sum (apples): 45 (at least 40 wanted)  holds" in out
    assert "sum again: as stated" in out
    assert "sum (apples)" in out
    assert "45.0%" in out
    kept = json.loads((Path("runs") / "bench" / "adding.json").read_text())
    assert (kept["holds"], kept["settings"], kept["short"]) == (True, {"most": 10}, False)
    assert kept["findings"]["tables"][0]["rows"][0]["none"] is None


def test_what_does_not_hold_is_told_and_is_the_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert status("all", "--short", "--out", "here") == 1
    assert "sum (apples): 3 (at least 40 wanted)  DOES NOT HOLD" in capsys.readouterr().out
    assert json.loads(Path("here/adding.json").read_text())["holds"] is False


def test_settings_are_read_and_json_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert status("adding", "--most", "20", "--json") == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["findings"]["claims"][0]["got"] == 190


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["ading"], "did you mean 'adding'?"),
        (["all", "--most", "3"], "expected no settings for all experiments at once"),
        (["adding", "--out"], "expected a value after --out"),
    ],
)
def test_what_cannot_be_run_is_refused_before(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(*arguments) == 2
    assert told in " ".join(capsys.readouterr().err.split())
