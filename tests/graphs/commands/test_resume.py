"""``headrace resume``, and ``run --options.resume auto``: what they do, and each thing they say, with a graph of one's own."""

import json
import shutil
from importlib.metadata import version
from pathlib import Path

import pytest

from graphs.cli import main
from graphs.runs.lock import locked

OWN = '''
from pathlib import Path

from pydantic import BaseModel

from flow import Collect, Context, Graph


class Config(BaseModel, extra="forbid"):
    steps: int = 4
    factor: int = 3


class Adding:
    """Fails at step 3 for as long as a file is there."""

    def __init__(self, factor: int) -> None:
        self.sum, self.step, self.factor, self.now = 0, 0, factor, 0

    def add(self, number: int, context: Context) -> None:
        self.now += number * self.factor

    def finish(self, context: Context) -> int:
        if self.step == 2 and Path("broken").exists():
            raise OSError("the server is gone")
        self.sum, self.step, self.now = self.sum + self.now, self.step + 1, 0
        context.report({"step": self.step, "sum": self.sum})
        return self.sum

    def state(self) -> tuple[int, int]:
        return self.sum, self.step

    def restore(self, state: tuple[int, int]) -> None:
        self.sum, self.step = state


async def same(number: int, context: Context) -> int:
    return number


def adding(config: Config) -> Graph:
    graph = Graph("adding")
    numbers = graph.source("numbers", range(1000))
    passed = graph.stage("passed", same)
    numbers >> passed >> graph.sink("added", Adding(config.factor), collect=Collect(2, steps=config.steps))
    return graph


def beside(config: Config) -> Graph:
    graph = Graph("beside")
    numbers = graph.source("numbers", range(1000))
    both = graph.broadcast("both", numbers)
    numbers >> both
    both >> graph.sink("added", Adding(config.factor), collect=Collect(2, steps=config.steps))
    both >> graph.sink("seen", Adding(1), collect=Collect(8, steps=config.steps // 4))
    return graph


class Endless:
    def draw(self) -> int:
        raise StopIteration


def keep(number: int, context: Context) -> None: ...


def unsaved() -> Graph:
    graph = Graph("unsaved")
    graph.source("numbers", Endless()) >> graph.sink("kept", keep)
    return graph
'''
RUN = ("run", "own.py:adding", "--options.name", "it", "--options.checkpoint-every", "1")
SUMS = [(1, 3), (2, 18), (3, 45), (4, 84)]
"""Of 0 + 1, + 2 + 3, + 4 + 5, + 6 + 7, each times 3."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(OWN)
    return tmp_path / "runs" / "it"


@pytest.fixture
def failed(folder: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """Folder of a run that failed in its third step."""
    (folder.parents[1] / "broken").touch()
    assert status(*RUN) == 1
    (folder.parents[1] / "broken").unlink()
    told = capsys.readouterr()
    assert told.out.splitlines()[-1] == "go on with: headrace resume runs/it"
    assert "the server is gone" in told.err
    return folder


def status(*arguments: str) -> int:
    try:
        main(arguments)
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def sums(folder: Path) -> list[tuple[int, int]]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [(row["step"], row["sum"]) for row in rows if "step" in row]


def test_a_run_that_failed_goes_on_where_its_latest_commit_has_it(failed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sums(failed) == SUMS[:2]
    assert status("resume", "runs/it") == 0
    assert "going on with runs/it after commit 2" in capsys.readouterr().out
    assert sums(failed) == SUMS
    summary = json.loads((failed / "summary.json").read_text())
    assert (summary["status"], summary["attempts"], summary["stages"]["numbers"]["emitted"] >= 8) == ("completed", 2, True)
    assert "error" not in summary
    attempts = [json.loads(line) for line in (failed / "attempts.jsonl").read_text().splitlines()]
    assert [(row["attempt"], row["commit"]) for row in attempts] == [(0, None), (1, 2)]
    assert status("resume", "runs/it") == 0
    assert "runs/it: completed, nothing is left to do; summary: " in capsys.readouterr().out
    (failed / "summary.json").write_bytes(b"")  # torn by a power cut: written again
    assert status("resume", "runs/it") == 0
    assert json.loads((failed / "summary.json").read_text())["status"] == "completed"
    assert sums(failed) == SUMS


def test_steps_of_a_sink_beside_the_line_are_not_compared_with_those_of_the_line(folder: Path) -> None:
    """As those of evaluations during training, which are fewer."""
    run = ("run", "own.py:beside", *RUN[2:])
    (folder.parents[1] / "broken").touch()
    assert status(*run) == 1
    (folder.parents[1] / "broken").unlink()
    assert status("resume", "runs/it", "--steps", "8") == 0
    assert len(sums(folder)) == 8 + 2


def test_other_settings_for_a_run_that_is_over_are_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(*RUN) == 0
    capsys.readouterr()
    for again in (("resume", "runs/it"), (*RUN, "--options.resume", "auto")):
        assert status(*again, "--steps", "5") == 2
        assert capsys.readouterr().err == (
            "headrace: expected the settings of a run that is completed, got others:\n"
            "  steps: 4 before, 5 now; impossible: the run is over\n"
            "begin a new run with them\n"
        )
    assert json.loads((folder / "config.json").read_text())["config"]["steps"] == 4


def test_more_steps_are_told_and_taken(failed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status("resume", "runs/it", "--steps", "5", "--options.keep", "3") == 0
    told = capsys.readouterr().out
    assert "changed since it was saved:\n  steps: 4 before, 5 now; accepted: how long\n" in told
    assert "  options.keep: 2 before, 3 now; accepted: how the run is saved\n" in told
    assert sums(failed) == [*SUMS, (5, 84 + 17 * 3)]
    assert json.loads((failed / "config.json").read_text())["config"]["steps"] == 5


def test_a_setting_that_makes_another_run_of_it_is_refused_and_may_be_accepted_by_name(
    failed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status("resume", "runs/it", "--factor", "5") == 2
    assert capsys.readouterr().err == (
        "headrace: expected what the run was saved with, got other settings:\n"
        "  factor: 3 before, 5 now; refused: the run would have been another with it\n"
        "leave them as they were, accept what is refused with --options.accept factor, or begin a new run\n"
    )
    assert json.loads((failed / "config.json").read_text())["config"]["factor"] == 3
    assert status("resume", "runs/it", "--factor", "5", "--options.accept", "factor") == 0
    assert "factor: 3 before, 5 now; accepted: by name" in capsys.readouterr().out
    assert sums(failed) == [*SUMS[:2], (3, 18 + 45), (4, 18 + 45 + 65)]


def test_what_was_accepted_at_one_start_does_no_harm_at_the_next(failed: Path) -> None:
    """A scheduler gives the same arguments each time."""
    again = (*RUN, "--options.resume", "auto", "--factor", "5", "--options.accept", "factor")
    (failed.parents[1] / "broken").touch()
    assert [status(*again), status(*again)] == [1, 1]
    (failed.parents[1] / "broken").unlink()
    assert [status(*again), status(*again)] == [0, 0]


def test_fewer_steps_than_were_taken_are_refused(failed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status("resume", "runs/it", "--steps", "2") == 2
    assert "adding.added.steps: 4 before, 2 now; impossible: 2 are taken already" in capsys.readouterr().err


def test_a_run_begun_again_by_its_scheduler_goes_on_and_ends_well(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder.parents[1] / "broken").touch()
    again = (*RUN, "--options.resume", "auto")
    assert [status(*again), status(*again)] == [1, 1]
    (folder.parents[1] / "broken").unlink()
    assert [status(*again), status(*again)] == [0, 0]
    assert sums(folder) == SUMS
    assert capsys.readouterr().out.count("going on with runs/it after commit 2") == 2
    assert status("run", "own.py:unsaved", "--options.name", "it", "--options.resume", "auto") == 2
    assert "expected the program that the run was begun with, own.py:adding, got own.py:unsaved" in capsys.readouterr().err
    assert status("run", "own.py:adding", "--options.resume", "auto") == 2
    assert "expected --options.name with --options.resume auto" in capsys.readouterr().err


def test_a_run_that_was_cut_off_before_its_first_commit_begins_again_in_its_folder(
    failed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(failed / "checkpoints")
    assert status("resume", "runs/it") == 0
    assert "going on with runs/it at its beginning: it has no commit" in capsys.readouterr().out
    assert sums(failed) == SUMS
    rows = [json.loads(line)["row"] for line in (failed / "superseded.jsonl").read_text().splitlines()]
    moved = [row["step"] for row in rows if "step" in row]  # and not those of health
    assert moved == [1, 2]


def test_other_versions_are_told_and_accepted(failed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = failed / "checkpoints" / "000002" / "manifest.json"
    saved = json.loads(manifest.read_text())
    saved["about"]["versions"]["packages"]["jax"] = "0.1"
    manifest.write_text(json.dumps(saved))
    assert status("resume", "runs/it") == 0
    told = (
        f"not as where it was saved:\n  packages.jax: 0.1 before, {version('jax')} now; accepted: the last bits of numbers may"
    )
    assert told in capsys.readouterr().out


def test_commits_whose_settings_nobody_knows_are_not_begun_over(failed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (failed / "config.json").unlink()
    assert status(*RUN, "--options.resume", "auto") == 2
    assert "expected a run with a config.json beside its commits, got 'runs/it' without" in capsys.readouterr().err
    assert sums(failed) == SUMS[:2]


def test_a_used_name_is_refused_with_what_goes_on(failed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(*RUN) == 2
    assert f"to go on with a run that lies there: headrace resume {failed}" in capsys.readouterr().err


def test_a_run_that_somebody_is_at_is_left_alone(failed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with locked(failed):
        assert status("resume", "runs/it") == 2
    assert capsys.readouterr().err == (
        f"headrace: expected a run that nobody is at, got one that another process works on, in {failed}; wait for its end, or "
        "end it\n"
    )


def test_a_damaged_commit_is_passed_over_and_none_that_is_whole_is_refused(
    failed: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """S96."""
    (failed / "checkpoints" / "000002" / "moment").write_bytes(b"")
    assert status("resume", "runs/it", "--factor", "4") == 2
    assert "since what is newer is not whole" in caplog.text
    capsys.readouterr()
    (failed / "checkpoints" / "000001" / "manifest.json").write_bytes(b"{}")
    assert status("resume", "runs/it") == 2
    assert "expected a commit that is whole, got none of 2" in capsys.readouterr().err


def test_a_run_without_commits_is_not_gone_on_with(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unsaved = (*RUN[:4], "--options.checkpoint-every", "None")
    (folder.parents[1] / "broken").touch()
    assert status(*unsaved) == 1
    assert not (folder / "checkpoints").exists()
    assert status("resume", "runs/it") == 2
    told = "expected a run with commits, got one with --options.checkpoint-every none, in 'runs/it'; begin a new one"
    assert told in capsys.readouterr().err
    assert status("resume", "runs/other") == 2
    assert "expected a run with a config.json, got 'runs/other'" in capsys.readouterr().err


def test_one_without_commits_that_is_over_says_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unsaved = (*RUN[:4], "--options.checkpoint-every", "None", "--options.resume", "auto")
    assert status(*unsaved) == 0
    assert status(*unsaved) == 0
    assert "runs/it: completed, nothing is left to do" in capsys.readouterr().out


def test_a_graph_that_cannot_be_saved_is_warned_of_and_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status("run", "own.py:unsaved", "--options.name", "it") == 0
    assert "warning: a run of graph 'unsaved' starts over where it is resumed, since it cannot be saved: unsaved.numbers: " in (
        capsys.readouterr().out
    )


def test_a_commit_that_the_disk_refuses_is_told_and_the_run_goes_on(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """S98, S99: its end that cannot be saved is no good end."""
    source = OWN.replace('        context.report({"step"', "        ruin()\n" + '        context.report({"step"')
    ruin = "\n\ndef ruin():\n    import shutil\n    shutil.rmtree('runs/it/checkpoints', ignore_errors=True)\n    "
    (folder.parents[1] / "own.py").write_text(source + ruin + "Path('runs/it/checkpoints').touch()\n")
    assert status(*RUN) == 1
    told = capsys.readouterr()
    assert "warning: a commit could not be made, and the run goes on: " in told.out
    assert "expected a commit at the end of graph 'adding'" in told.err
    assert sums(folder) == SUMS
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert any(row["stage"] == "commits" and "could not be made" in row["warning"] for row in rows)


@pytest.mark.parametrize(("option", "told"), [("keep", "at least 1, got 0"), ("checkpoint-every", "at least 1, got 0")])
def test_options_out_of_range_are_refused(folder: Path, capsys: pytest.CaptureFixture[str], option: str, told: str) -> None:
    assert status(*RUN[:4], f"--options.{option}", "0") == 2
    assert f"expected {told}, in --options.{option}; raise it" in capsys.readouterr().err
