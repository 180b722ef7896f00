"""Real processes of a script: killed, halted and gone on with at points of their own."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from flow.testing import Start, points_of, processes

ROOT = Path(__file__).parents[3]
SCRIPT = """
import sys
from flow.testing import appended, reach, serve


def program(arguments):
    print("hello", *arguments)
    for step in arguments:
        appended("begun", step)
        reach("half.way")
        appended("ended", step)
    if "fail" in arguments:
        raise SystemExit(3)


if __name__ == "__main__":
    serve(program)
"""


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    script = tmp_path_factory.mktemp("script") / "program.py"
    script.write_text(SCRIPT)
    with processes([str(script)], ("a", "b"), PYTHONPATH=str(ROOT)) as start:
        yield start


def test_a_process_dies_at_the_asked_pass_of_a_point_and_another_goes_on_in_its_folder(start: Start, tmp_path: Path):
    assert start(tmp_path, die=("half.way", 2)).wait() == -signal.SIGKILL
    life = start(tmp_path)
    assert life.wait() == 0
    assert life.told("begun") == ["a", "b", "a", "b"]
    assert life.told("ended") == ["a", "a", "b"]
    assert points_of(life) == [("half.way", number) for number in (1, 2, 3, 4)]
    assert "hello a b" in life.output


def test_a_process_that_halts_at_a_point_goes_on_when_it_is_told_to(start: Start, tmp_path: Path):
    life = start(tmp_path, "a", halt=("half.way", 1))
    life.wait_point("half.way")
    assert life.told("ended") == []
    life.kill(signal.SIGCONT)
    assert life.wait() == 0
    assert life.told("ended") == ["a"]


def test_the_status_of_a_process_is_that_of_its_program(start: Start, tmp_path: Path):
    assert start(tmp_path, "fail").wait() == 3


def test_what_is_waited_for_in_vain_is_told_with_what_the_process_said(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    life = start(tmp_path, "a")
    assert life.wait() == 0
    monkeypatch.setattr("flow.testing._lives.MOST_S", 0.01)
    with pytest.raises(TimeoutError, match=r"expected never.there for the 1. time within 0.01 s, got: hello a"):
        life.wait_point("never.there")
