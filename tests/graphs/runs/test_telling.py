"""A whole run tells alerts and loggers, from the command line on; with a graph of one's own, which takes no time."""

import asyncio
import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from flow.trace import read_trace
from graphs.cli import main
from graphs.program import Program
from graphs.runs.folder import RunFolder
from graphs.runs.options import SavingOptions
from graphs.runs.telling import Telling
from stages.packages import MissingPackageError

OWN = """
from pathlib import Path

from flow import Collect, Context, Graph


class Adding:
    def __init__(self) -> None:
        self.sum, self.step = 0, 0

    def add(self, number: int, context: Context) -> None:
        self.sum += number

    def finish(self, context: Context) -> None:
        self.step += 1
        context.report({"step": self.step, "sum": self.sum})
        if self.step == 4 and Path("broken").exists():
            raise OSError("the server is gone")

    def state(self) -> tuple[int, int]:
        return self.sum, self.step

    def restore(self, state: tuple[int, int]) -> None:
        self.sum, self.step = state


def adding() -> Graph:
    graph = Graph("adding")
    graph.source("numbers", range(100)) >> graph.sink("added", Adding(), collect=Collect(2, steps=6))
    return graph
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(OWN)
    return tmp_path / "runs" / "it"


def status(*arguments: str) -> int:
    try:
        main(["run", "own.py:adding", "--options.name", "it", *arguments])
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def rows(folder: Path, stage: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [row for row in found if row["stage"] == stage]


@pytest.mark.slow
def test_an_alert_is_a_row_a_line_a_moment_in_the_trace_and_goes_to_the_command(
    own: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Sums are 1, 6, 15, 28, 45, 66; it is raised at the second above 10 in a row."""
    command = f"\"{sys.executable}\" -S -c \"import sys; open('sent', 'w').write(sys.stdin.read())\""
    assert status("--options.alerts", "sum>10 for 2", "--options.alert-command", command) == 0
    assert [(row["alert"], row["state"], row["value"]) for row in rows(own, "alerts")] == [("sum>10 for 2", "raised", 28)]
    assert "alert: sum>10 for 2: 28 in added" in capsys.readouterr().out
    trace = read_trace(own)
    (moment,) = [instant for instant in trace.instants if instant.name == "alert"]
    assert moment.args["alert"] == "sum>10 for 2"
    sent = json.loads((tmp_path / "sent").read_text())
    assert (sent["alert"], sent["phase"], sent["step"]) == ("sum>10 for 2", "adding", 4)


@pytest.mark.slow
def test_what_fails_at_an_alert_is_a_warning_and_the_run_completes(own: Path) -> None:
    command = f'"{sys.executable}" -S -c "import sys; sys.exit(3)"'
    assert status("--options.alerts", "sum>10", "--options.alert-command", command) == 0
    assert [row["warning"] for row in rows(own, "alerts") if "warning" in row] == ["the alert command failed with status 3: "]


@pytest.mark.slow
def test_what_fails_at_an_alert_is_told_with_the_phase_of_the_alert(tmp_path: Path) -> None:
    """The command fails once the run is at its next phase."""
    wait = "import pathlib, sys, time\nwhile not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.01)\nsys.exit(3)"
    (tmp_path / "wait.py").write_text(wait)
    command = f'"{sys.executable}" -S "{tmp_path / "wait.py"}" "{tmp_path / "over"}"'
    options = SavingOptions(alerts=("loss>10",), alert_command=command)

    async def run() -> None:
        with RunFolder(tmp_path / "run") as folder:
            telling = Telling(Program("mine", None, None, ()), folder, options)
            telling.open()
            folder.begin("warm_start")
            folder.tell("trainer", {"loss": 11.0})
            folder.begin("rl")
            (tmp_path / "over").touch()
            folder.tell("trainer", {"loss": 1.0})
            telling.close({})

    asyncio.run(run())
    told = [(row["phase"], row.get("warning") or row["state"]) for row in rows(tmp_path / "run", "alerts")]
    assert told == [("warm_start", "raised"), ("warm_start", "the alert command failed with status 3: ")]


def test_a_rule_over_what_no_row_had_is_told_at_the_end(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A graph of one's own may report what it likes, so that a misspelt name cannot be refused."""
    assert status("--options.alerts", "sum>1000", "summ>10") == 0
    assert "warning: nothing was judged by 'summ>10': no row had such a metric" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--options.alerts", "sum=3"), "expected a rule such as"),
        (("--options.alert-webhook", "nowhere"), "expected an address that begins with http:// or https://"),
        (("--options.health-s", "0"), "expected at least 0.05, got 0.0, in --options.health-s"),
        (("--options.loggers", "tensorbord"), "tensorboard"),
    ],
)
def test_what_cannot_work_is_refused_before_work_starts(
    own: Path, arguments: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """S105."""
    assert status(*arguments) == 2
    assert told in capsys.readouterr().err
    assert not own.exists()


@pytest.mark.parametrize(("name", "package"), [("tensorboard", "tensorboardX"), ("wandb", "wandb"), ("otel", "opentelemetry")])
def test_a_logger_whose_package_is_missing_is_refused_with_the_extra(
    own: Path, name: str, package: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if find_spec(package) is not None:

        def missing(module: str, extra: str, where: str) -> None:
            raise MissingPackageError(f"pip install 'headrace[{extra}]', in {where}")

        monkeypatch.setattr("graphs.loggers.chosen.optional_package", missing)
    assert status("--options.loggers", name) == 2
    told = capsys.readouterr().err
    assert f"pip install 'headrace[{name}]'" in told
    assert f"--options.loggers {name}" in told
    assert not own.exists()


@pytest.mark.extra
@pytest.mark.slow
def test_a_run_logs_to_tensorboard_what_its_rows_say_and_a_logger_that_fails_is_one_warning(
    own: Path, monkeypatch: Any
) -> None:
    """OpenTelemetry is sent to where nobody listens, and asked for an exporter that is not there."""
    pytest.importorskip("tensorboardX")
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    pytest.importorskip("opentelemetry.sdk")
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "pigeon")
    assert status("--options.loggers", "tensorboard", "otel") == 0
    events = accumulator.EventAccumulator(str(own / "tensorboard" / "adding"))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("added/sum")] == [
        (row["step"], row["sum"]) for row in rows(own, "added")
    ]
    (warned,) = [row["warning"] for row in rows(own, "loggers")]
    assert warned.startswith("the logger otel failed: LookupError: expected an exporter that is installed, got 'pigeon'")


@pytest.mark.extra
@pytest.mark.slow
def test_a_run_that_failed_and_is_gone_on_with_has_each_step_once_for_every_logger(
    own: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    """Its fourth step was logged, and is no part of the commit it goes on from; loggers are those it began with."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    for name in ("CACHE", "CONFIG", "DATA"):
        monkeypatch.setenv(f"WANDB_{name}_DIR", str(tmp_path / "own"))
    (tmp_path / "broken").touch()
    assert status("--options.loggers", "tensorboard", "wandb", "--options.checkpoint-every", "1") == 1
    (tmp_path / "broken").unlink()
    main(["resume", "runs/it"])
    assert [row["step"] for row in rows(own, "added")] == [1, 2, 3, 4, 5, 6]
    events = accumulator.EventAccumulator(str(own / "tensorboard" / "adding"))
    events.Reload()
    assert [event.step for event in events.Scalars("added/sum")] == [1, 2, 3, 4, 5, 6]
    files = list((own / "wandb").glob("offline-run-*/*.wandb"))
    assert [file.stem.removeprefix("run-") for file in files] == [(own / "wandb" / "wandb-run-id").read_text()] * 2
    assert rows(own, "loggers") == []


@pytest.mark.slow
def test_the_webhook_is_not_written_down_and_the_rest_is(own: Path) -> None:
    assert status("--options.alerts", "--options.alert-webhook", "http://127.0.0.1:9/key", "--options.health-s", "3") == 0
    assert "127.0.0.1" not in "".join(path.read_text() for path in own.glob("*.json*"))
    options = json.loads((own / "config.json").read_text())["options"]
    assert (options["alerts"], options["health_s"], options["loggers"]) == ([], 3.0, [])
