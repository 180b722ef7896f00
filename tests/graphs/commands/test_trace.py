"""``headrace trace``: what it says of a run that was made here, to people and to scripts."""

import json
from pathlib import Path
from typing import Any

import pytest

from graphs.cli import main


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    main(["trace", *arguments])
    return capsys.readouterr().out


@pytest.fixture
def found(finished: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    return json.loads(told(capsys, str(finished), "--json"))


def graph_of(found: dict[str, Any], name: str) -> dict[str, Any]:
    return next(graph for graph in found["verdict"]["graphs"] if graph["graph"] == name)


@pytest.mark.slow
def test_every_phase_of_a_run_is_told_in_80_columns(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = told(capsys, str(finished))
    for phase in ("== sft: ", "== heldout_before: ", "== rl: ", "== heldout_after: "):
        assert phase in text
    assert [line for line in text.splitlines() if len(line) > 80] == []
    assert "trainer waited " in text
    assert "Bounded by " in text
    assert "Try next:" in text
    assert "episodes > model" in text


@pytest.mark.slow
def test_a_script_gets_steps_shares_and_the_engines_idle_time(found: dict[str, Any], summary: dict[str, Any]) -> None:
    rl = graph_of(found, "rl")
    assert (rl["sink"], rl["steps"]) == ("trainer", summary["steps"])
    assert sum(part["share"] for part in rl["path"]) == pytest.approx(1.0)
    shares = {stage["name"]: stage["work"] for stage in rl["stages"]}
    for name, row in summary["stages"].items():
        assert shares[name] == pytest.approx(row["work_share"], abs=0.02)
    engine = rl["asked"][0]
    idle = sum(engine[name] for name in ("asked", "loading", "elsewhere", "nothing"))
    assert engine["name"] == "engine"
    assert idle + sum(engine["busy"].values()) == pytest.approx(1.0, abs=0.02)
    assert len(found["advice"]) == len(found["verdict"]["graphs"])


@pytest.mark.slow
def test_of_a_run_compared_with_itself_nothing_changed(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = told(capsys, str(finished), "--compare", str(finished))
    assert "No setting differs that is known." in text
    assert "critical path: changed by less than 2%" in text
    assert "in both" in text
    assert "critical path, as far as it changed" not in text
    both = json.loads(told(capsys, str(finished), "--compare", str(finished), "--json"))
    assert both["one"] == both["other"]
    assert both["settings"] == []


@pytest.mark.parametrize(("name", "content"), [("empty.pftrace", b""), ("foreign.pftrace", b"PK\x03\x04 no trace")])
def test_what_is_no_trace_is_refused_with_what_to_give(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: bytes
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SystemExit) as ended:
        main(["trace", str(tmp_path / name)])
    assert ended.value.code == 2
    assert "give the run.pftrace file of a run" in capsys.readouterr().err


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["trace", str(tmp_path / "nowhere")])
    assert ended.value.code == 2
    assert "nowhere" in capsys.readouterr().err
