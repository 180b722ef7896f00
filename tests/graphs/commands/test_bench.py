"""``headrace bench`` measures, keeps, tells and compares; its exit status says whether every claim held."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from graphs.bench import suite
from graphs.bench.kept import Kept, read_kept, write_kept
from graphs.cli import USAGE, main
from graphs.commands.bench import BenchOptions, listed
from graphs.commands.usage import lines_of

ROOT = Path(__file__).parents[3]
TINY = ROOT / "tests" / "graphs" / "bench_experiments.py"


@pytest.fixture
def here(experiments: Mapping[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, and tiny experiments in place of the real ones."""
    monkeypatch.chdir(tmp_path)
    for name in list(suite.EXPERIMENTS):
        monkeypatch.delitem(suite.EXPERIMENTS, name)  # pyright: ignore[reportArgumentType]
    for name, experiment in experiments.items():
        monkeypatch.setitem(suite.EXPERIMENTS, name, experiment)  # pyright: ignore[reportArgumentType]
    return tmp_path


def status_of(*arguments: str) -> int:
    try:
        main(["bench", *arguments])
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert status_of(*arguments) == 2
    return " ".join("".join(capsys.readouterr()).split())


def test_without_a_name_experiments_are_listed_with_what_is_known_of_them(
    here: Path, words: Kept, capsys: pytest.CaptureFixture[str]
) -> None:
    write_kept(here / "runs" / "bench", words)
    assert status_of() == 0
    lines = capsys.readouterr().out.splitlines()
    at = next(at for at, line in enumerate(lines) if line.startswith("  words "))
    assert "Words: words through a graph" in lines[at]
    assert re.search(r"took \d+\.\d s here$", lines[at + 1])
    study = next(at for at, line in enumerate(lines) if line.startswith("  study "))
    assert lines[study + 1].strip() == "not measured here yet, measured only when asked for by name"


def test_help_lists_the_experiments(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("--help") == 0
    out = capsys.readouterr().out
    assert out == f"{lines_of(USAGE, 'bench')}\n\n{listed()}\n"
    assert status_of("words", "--help") == 0
    told = capsys.readouterr().out
    assert all(option in told for option in ("--words INT", "--out PATH", "--short", "--json"))


def test_an_experiment_is_measured_kept_and_told(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("words", "--words", "30", "--out", "found here") == 0
    out, err = capsys.readouterr()
    assert "30 of 30 words came out" in out
    assert "  holds     words that came out: 30, must be 30" in out
    assert "kept: found here/words.json" in out
    assert max(map(len, out.splitlines())) <= 80
    assert err.strip() == "words: 0 of 1, a graph of three nodes"
    kept = read_kept(here / "found here" / "words.json")
    assert (kept.settings["words"], kept.short, kept.command) == (30, False, "headrace bench words --words 30")


def test_short_settings_are_those_of_the_experiment_and_others_count_on_top(here: Path) -> None:
    assert status_of("words", "--short") == 0
    kept = read_kept(here / "runs" / "bench" / "words.json")
    assert (kept.settings["words"], kept.short, kept.command) == (8, True, "headrace bench words --short")
    assert status_of("words", "--wanted=8", "--short") == 0
    assert read_kept(here / "runs" / "bench" / "words.json").command == "headrace bench words --wanted=8 --short"


def test_json_is_one_line_and_nothing_else(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("words", "--short", "--json", "--out=kept") == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    told = json.loads(out)
    assert told == json.loads((here / "kept" / "words.json").read_text())
    assert told["command"] == "headrace bench words --short"


def test_a_claim_that_does_not_hold_is_status_1_and_kept_all_the_same(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("words", "--short", "--wanted", "3") == 1
    assert "  does not  words that came out: 8, must be 3" in capsys.readouterr().out
    assert read_kept(here / "runs" / "bench" / "words.json").holds is False


def test_an_experiment_that_fails_tells_its_error_and_keeps_nothing(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("failing") == 1
    assert "headrace: the tool is gone" in capsys.readouterr().err
    assert list((here / "runs" / "bench").iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["wrods"], "expected one of words, dying, failing, study, all, page, compare, got 'wrods', in bench; did you "
                    "mean 'words'?"),
        (["pgae", "a", "b"], "did you mean 'page'?"),
        (["xyzzy"], "headrace bench lists them"),
        (["words", "--wrods", "3"], "--words"),
        (["words", "--words", "0"], "words: input should be greater than or equal to 1, got 0"),
        (["words", "--words", "many"], "--words"),
        (["words", "--words", "3", "--words", "4"], "expected each setting once, got --words 2 times"),
        (["words", "--out", "file"], "expected a path that can be used, got 'file'"),
        (["all", "--words", "3"], "--words"),
        (["page"], "got nothing, in bench page; write headrace bench page runs/bench bench.html"),
        (["page", "none", "x.md"], "expected a folder of findings, got none at 'none'; headrace bench all --out none"),
        (["page", "empty", "x.md"], "expected findings, NAME.json, got none in 'empty'"),
        (["page", "other", "x.md"], "expected findings as headrace bench keeps them, got something else"),
        (["page", "kept", "x.pdf"], "expected a folder of findings and a file, NAME.md or NAME.html"),
        (["compare", "kept"], "expected two folders of findings, got kept, in bench compare"),
        (["compare", "kept", "none"], "expected a folder of findings, got none at 'none'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)  # fmt: skip
def test_what_the_user_can_mend_is_told_before_anything_is_measured(
    arguments: list[str], told: str, here: Path, words: Kept, capsys: pytest.CaptureFixture[str]
) -> None:
    write_kept(here / "kept", words)
    (here / "empty").mkdir()
    (here / "file").touch()
    (here / "other").mkdir()
    (here / "other" / "package.json").write_text('{"name": "other"}')
    assert told in refused(capsys, *arguments)
    assert not (here / "x.md").exists()
    assert not (here / "runs").exists() or list((here / "runs" / "bench").iterdir()) == []


def test_pages_are_written_from_a_folder(here: Path, words: Kept, capsys: pytest.CaptureFixture[str]) -> None:
    write_kept(here / "kept", words)
    assert status_of("page", "kept", "bench.md") == 0
    assert status_of("page", "kept", "bench.html") == 0
    assert capsys.readouterr().out == "written: bench.md and 1 pictures in bench\nwritten: bench.html\n"
    assert "](bench/words-1.svg)" in (here / "bench.md").read_text()
    assert "<h1>The benchmark</h1>" in (here / "bench.html").read_text()


def test_two_folders_are_compared_whatever_came_out(here: Path, words: Kept, capsys: pytest.CaptureFixture[str]) -> None:
    write_kept(here / "one", words)
    assert status_of("words", "--short", "--out", "other", "--wanted", "3") == 1
    capsys.readouterr()
    assert status_of("compare", "one", "other") == 0
    out = capsys.readouterr().out
    assert "holds in the first, does not in the second" in out
    assert "another setting: words: 40; then 8" in out


def test_no_experiment_has_the_name_of_a_command_or_a_setting_of_the_name_of_an_option() -> None:
    options = set(BenchOptions.__dataclass_fields__)
    assert {"all", "page", "compare"} & set(suite.EXPERIMENTS) == set()
    for name, experiment in suite.EXPERIMENTS.items():
        assert name == experiment.name
        assert re.fullmatch("[a-z]+", name)
        assert options & set(experiment.config.model_fields) == set()
        assert isinstance(experiment.short, experiment.config)
        assert experiment.config() is not None


def command(names: str, *arguments: str) -> list[str]:
    """``headrace bench`` with some of the tiny experiments in place of the real ones."""
    return [sys.executable, str(TINY), names, "bench", *arguments]


@pytest.fixture
def paths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


@pytest.mark.slow
@pytest.mark.usefixtures("paths")
def test_all_are_measured_whatever_comes_of_one(tmp_path: Path, words: Kept) -> None:
    write_kept(tmp_path / "kept", msgspec.structs.replace(words, name="dying"))
    arguments = command("dying,words,study", "all", "--short", "--json", "--out", "kept")
    done = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert [json.loads(line)["settings"]["words"] for line in done.stdout.splitlines()] == [8], "lines of JSON and nothing else"
    lines = [re.sub(r" +\d+\.\d s +", " ", line) for line in done.stderr.splitlines()]
    heads = ["== 1 of 2: dying ==", "== 2 of 2: words ==", "== all =="]
    assert [line for line in lines if line.startswith("== ")] == heads
    assert lines[-3:] == [
        "does not  dying ended with signal 9 and kept nothing",
        "holds     words 2 hold, 1 has no bound",
        "not measured, since they take long: study; headrace bench NAME",
    ]
    assert read_kept(tmp_path / "kept" / "words.json").command == "headrace bench words --short"


WAITING = """
import os, signal
from pathlib import Path
try:
    Path("mark").write_text(f"begun {os.getpid()}")
    signal.pause()
except KeyboardInterrupt:
    Path("mark").write_text(f"interrupted {os.getpid()}")
"""
ALL = f"""
import sys
from pathlib import Path
from graphs.commands import bench_all
bench_all.here = lambda: (sys.executable, "-c", {WAITING!r})
bench_all.measure_all(["waiting"], Path("kept"), [], print)
"""


@pytest.mark.slow
@pytest.mark.usefixtures("paths")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_whoever_ends_all_ends_the_one_that_is_measured(number: int, tmp_path: Path) -> None:
    """In a process that waits until it is interrupted; headrace would do it the same way, and takes long to start."""
    mark = tmp_path / "mark"
    with subprocess.Popen([sys.executable, "-c", ALL], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 60
        while not (mark.exists() and mark.read_text()):
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.05)
        begun, child = mark.read_text().split()
        process.send_signal(number)
        process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT, "taken as an interrupt, which the command line gives status 130"
    assert (begun, mark.read_text()) == ("begun", f"interrupted {child}")
    with pytest.raises(ProcessLookupError):
        os.kill(int(child), 0)


@pytest.mark.slow
@pytest.mark.usefixtures("paths")
def test_on_a_terminal_progress_goes_and_marks_are_coloured(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    environment.pop("NO_COLOR", None)
    with subprocess.Popen(
        command("words", "words", "--short"), cwd=tmp_path, stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    ) as process:
        os.close(theirs)
        told = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # nobody writes any more
                break
            if not piece:
                break
            told += piece
    os.close(ours)
    assert process.returncode == 0
    text = told.decode()
    assert "a graph of three nodes" in text
    assert "\x1b[32mholds\x1b[0m" in text
