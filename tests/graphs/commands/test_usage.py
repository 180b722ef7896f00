"""What a newcomer sees first: the help of each command, and what is said where something is missing."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from graphs.catalogue import CATALOGUE
from graphs.cli import USAGE, main
from graphs.commands.usage import lines_of

COMMANDS = sorted(set(re.findall(r"^  headrace ([a-z-]+) ", USAGE, flags=re.MULTILINE)))
ROOT = Path(__file__).parents[3]


def told(capsys: pytest.CaptureFixture[str], status: int, *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == status
    out, err = capsys.readouterr()
    return out + err


def test_every_command_is_in_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    known = re.findall(r"expected one of (.*), got", told(capsys, 2, "nothing"))[0].split(", ")
    assert sorted(known) == COMMANDS


@pytest.mark.parametrize("command", sorted({*COMMANDS} - {"bench", "doctor"}))
def test_the_help_of_a_command_is_of_that_command(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    helped = told(capsys, 0, command, "--help")
    assert lines_of(USAGE, command) in helped
    assert len(re.findall(r"^  headrace ", helped, flags=re.MULTILINE)) == 1
    missing = told(capsys, 2, command)
    assert missing == f"headrace: expected more after '{command}', got nothing:\n{lines_of(USAGE, command)}\n"


def test_help_tells_the_settings_where_they_are_always_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--max-tokens" in told(capsys, 0, "chat", "--help")
    assert all(name in told(capsys, 0, "run", "--help") for name in CATALOGUE)


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert re.fullmatch(r"headrace \d+\.\d+\.\d+\n", told(capsys, 0, "--version"))


def test_lines_that_go_on_belong_to_their_command() -> None:
    usage = "  headrace one A    does\n                    this\n  headrace one-more B   does that\n\nNAME is\n"
    assert lines_of(usage, "one") == "  headrace one A    does\n                    this"
    assert lines_of(usage, "one-more") == "  headrace one-more B   does that"
    assert lines_of(usage, "two") == "  headrace two"


@pytest.mark.slow
def test_who_reads_only_the_beginning_leaves_no_error() -> None:
    """``headrace run calculator --help | head -1``: nothing is said of a closed pipe; the status is that of rich."""
    command = f"{sys.executable} -m graphs.cli run calculator --help | true"
    done = subprocess.run(
        ["bash", "-c", f"{command}; echo ${{PIPESTATUS[0]}}"], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert (done.stdout, done.stderr) == ("1\n", "")
