"""``headrace report`` and ``headrace view`` say what they do, and what they cannot."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from graphs.cli import main

ROOT = Path(__file__).parents[3]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"program": "calculator", "config": {}, "options": {}}))
    return folder


def test_a_report_is_written_again(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["report", str(run)])
    assert f"written: {run / 'report.html'}" in capsys.readouterr().out
    assert "<h1>run</h1>" in (run / "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["report", "{run}/none"], "expected a run with a config.json"),
        (["report", "{run}", "more"], "expected the folder of one run"),
        (["view", "{run}/none"], "expected the folder of a run, or one that runs lie in"),
        (["view", "{run}", "--port", "70000"], "expected a port from 0 to 65535, got 70000"),
    ],
    ids=["no run", "two words", "nothing to serve", "no port"],
)
def test_what_cannot_be_done_is_told(run: Path, arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([word.format(run=run) for word in arguments])
    assert ended.value.code == 2
    assert told in capsys.readouterr().err.replace("\n", " ")


@pytest.mark.slow
def test_a_view_tells_its_address_and_ends_with_an_interrupt(run: Path) -> None:
    command = [sys.executable, "-m", "graphs.cli", "view", str(run), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        address = next(word.rstrip(",") for word in line.split() if word.startswith("http:"))
        with urllib.request.urlopen(address, timeout=10) as answer:
            assert b"<h1>run</h1>" in answer.read()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 0
