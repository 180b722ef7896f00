"""Everything a user can get wrong is told at the start, with exit status 2, and leaves nothing behind."""

import json
from pathlib import Path

import pytest

from flow.trace import read_trace
from graphs.calculator import CalculatorConfig
from graphs.cli import main

BROKEN = """
from flow import Context, Graph
from stages.train.gate import GateClosed

async def length(text: str, context: Context) -> int:
    return len(text)

async def shout(text: str, context: Context) -> str:
    return text.upper()

def keep(text: str, context: Context) -> None: ...

def broken() -> Graph:
    graph = Graph("words")
    words = graph.source("words", ["a", "bc"])
    lengths = graph.stage("lengths", length)
    loud = graph.stage("loud", shout)
    kept = graph.sink("kept", keep)
    words >> lengths >> loud >> kept
    return graph

async def fall(text: str, context: Context) -> str:
    raise OSError("the server is gone")

def failing() -> Graph:
    graph = Graph("words")
    words = graph.source("words", ["a", "bc"])
    loud = graph.stage("loud", fall)
    kept = graph.sink("kept", keep)
    words >> loud >> kept
    return graph

def close(text: str, context: Context) -> None:
    raise GateClosed("expected a reward; got none at step 1; widen it")

def stopping() -> Graph:
    graph = Graph("words")
    graph.source("words", ["a", "bc"]) >> graph.sink("kept", close)
    return graph

def fine() -> Graph:
    graph = Graph("words")
    words = graph.source("words", ["a", "bc"])
    loud = graph.stage("loud", shout)
    kept = graph.sink("kept", keep)
    words >> loud >> kept
    return graph
"""


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    out, err = capsys.readouterr()
    return out + err


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(BROKEN)
    return tmp_path


def test_drawing_the_calculator_shows_its_stages_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    main(["draw", "calculator"])
    drawn = capsys.readouterr().out
    stages = ["[prompts]", "[members]", "[episodes]", "[groups]", "[rewards]", "[advantages]", "[batches]", "[trainer]"]
    places = [drawn.index(stage, drawn.index("graph rl")) for stage in stages]
    assert places == sorted(places)
    assert "back to episodes" in drawn


def test_a_broken_edge_is_told_in_four_parts(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = refused(capsys, "draw", "own.py:broken")
    assert "[lengths]" in text  # drawn all the same
    for part in ("[B2] words.lengths->loud", "own.py:", "expected  str", "got       int", "to do     put a stage between"):
        assert part in text, part


def test_a_graph_of_ones_own_runs(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["run", "own.py:fine", "--options.name", "mine"])
    assert (own / "runs" / "mine" / "summary.json").exists()


def test_the_trace_of_a_run_has_the_size_it_is_given_or_is_left_out(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["run", "own.py:fine", "--options.name", "traced", "--options.trace-bytes", "1000000"])
    main(["run", "own.py:fine", "--options.name", "bare", "--options.trace-bytes", "None"])
    assert any(read_trace(own / "runs" / "traced").slices)
    assert list((own / "runs" / "bare").glob("*.pftrace")) == []
    text = refused(capsys, "run", "own.py:fine", "--options.trace-bytes", "10")
    assert "expected at least 1000000, got 10, in --options.trace-bytes; raise it" in text


def test_a_misspelt_name_is_answered_with_the_nearest(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """S105."""
    assert "did you mean 'calculator'?" in refused(capsys, "run", "calculater")
    assert "did you mean 'run'?" in refused(capsys, "rum", "calculator")
    assert "did you mean 'fine'?" in refused(capsys, "check", "own.py:fin")


def test_an_unknown_key_is_answered_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    """S105: misspelt, at the wrong level, of the wrong type."""
    assert "--rl.steps" in refused(capsys, "run", "calculator", "--rl.stps", "3")
    wrong_level = refused(capsys, "run", "calculator", "--group-size", "3")
    assert "Unrecognized" in wrong_level
    assert "--rl.group-size" in wrong_level
    assert "Expected one of ('wait'" in refused(capsys, "run", "calculator", "--rl.late", "never")
    assert "--temperature" in refused(capsys, "chat", "nowhere", "--temprature", "1")
    assert "many" in refused(capsys, "run", "calculator", "--rl.steps", "many")


def test_a_value_out_of_range_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    text = refused(capsys, "run", "calculator", "--rl.steps", "0", "--rl.trainer.num-epochs", "0")
    assert text == "headrace: rl.trainer.num-epochs: input should be greater than or equal to 1, got 0\n"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("--algorithm", "cispo", "--rl.loss.dual-clip", "3"), "rl.loss: expected no dual_clip with objective='cispo'"),
        (("--algorithm", "ppo", "rl.critic:none"), "end the command line with rl.critic:critic-config, or change"),
        (("rl.reference:reference-config",), "end the command line with rl.reference:none, or change"),
    ],
)
def test_settings_that_contradict_each_other_are_told_in_one_sentence(
    capsys: pytest.CaptureFixture[str], given: tuple[str, ...], told: str
) -> None:
    """With the path of the setting and what to type, and without the words of the library that checks them."""
    text = refused(capsys, "check", "calculator", *given)
    assert told in text
    assert text.startswith("headrace: rl")
    assert "input_value" not in text
    assert "errors.pydantic.dev" not in text
    assert text.count("\n") == 1


def test_a_broken_row_is_told_with_its_number_and_nothing_is_written(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """S106."""
    (own / "tasks.jsonl").write_text('{"id": "a", "prompt": "1+1", "answer": "2"}\n{"id": "b", "prompt": 7}\n')
    (own / "model.gguf").write_bytes(b"")
    text = refused(capsys, "run", "grpo", "--policy.model", "model.gguf", "--tasks.train", "tasks.jsonl")
    assert "tasks.jsonl" in text
    assert "2" in text
    assert not (own / "runs").exists()


def test_a_prompt_longer_than_the_context_is_told_and_nothing_is_written(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = refused(capsys, "run", "calculator", "--engine.context-length", "6", "--options.name", "long")
    assert "expected prompts of at most 5 tokens" in text
    assert not (own / "runs").exists()


def test_a_model_that_is_not_there_is_told(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--policy.model FOLDER" in refused(capsys, "run", "smollm2")
    assert "which is none" in refused(capsys, "run", "smollm2", "--model", "nowhere.gguf")


def test_a_used_run_name_is_refused(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (own / "runs" / "old").mkdir(parents=True)
    (own / "runs" / "old" / "metrics.jsonl").write_text("")
    assert "choose another" in refused(capsys, "run", "own.py:fine", "--options.name", "old")


def test_a_run_that_is_not_there_cannot_be_evaluated(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "config.json" in refused(capsys, "eval", "runs/none")


def test_a_run_that_was_interrupted_before_its_first_commit_is_said_to_have_saved_nothing(
    own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = {"program": "calculator", "config": CalculatorConfig().model_dump(mode="json")}
    (own / "early").mkdir()
    (own / "early" / "config.json").write_text(json.dumps(config))
    assert "its first after --options.checkpoint-every steps of a training: let it get there, or headrace resume it" in refused(
        capsys, "eval", "early"
    )
    assert [path.name for path in (own / "early").iterdir()] == ["config.json"]


def test_parts_that_do_not_fit_each_other_are_refused(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Held-out questions among the demonstrations, rows shorter than an episode: found before anything runs."""
    assert "not among the demonstrations" in refused(capsys, "check", "calculator", "--tasks.heldout-share", "0.5")
    assert "raise row_length" in refused(capsys, "check", "calculator", "--rl.trainer.row-length", "32")
    assert "that cannot be used" in refused(capsys, "check", "calculator", "--warm-start.trainer.row-length", "20")


@pytest.mark.slow
def test_checking_tells_the_memory_and_warns_of_conversations_beyond_the_slots(capsys: pytest.CaptureFixture[str]) -> None:
    main(["check", "calculator", "--engine.slots", "64", "--engine.prefill-rows", "16"])
    told = capsys.readouterr().out
    for part in ("memory of each device", "keys and values, 64 x 64 tokens", "activations, 8 x 128 tokens", "4 graphs can run"):
        assert part in told, part
    assert "the same seed may give other numbers" in told


def test_tasks_that_could_not_be_scored_are_refused(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """S106: no answer, or none that is a number where numbers are compared."""
    (own / "tasks.jsonl").write_text('{"id": "a", "prompt": "1+1", "answer": "2"}\n{"id": "b", "prompt": "who?"}\n')
    (own / "model.gguf").write_bytes(b"")
    text = refused(capsys, "run", "grpo", "--policy.model", "model.gguf", "--tasks.train", "tasks.jsonl")
    assert "expected a number, got None" in text


def test_a_failed_run_exits_with_1_and_its_summary_says_why(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """S10: a fatal error is never a clean end."""
    with pytest.raises(SystemExit) as ended:
        main(["run", "own.py:failing", "--options.name", "failed"])
    assert ended.value.code == 1
    assert "OSError: the server is gone" in capsys.readouterr().err
    summary = json.loads((own / "runs" / "failed" / "summary.json").read_text())
    assert summary["status"] == "failed"
    assert "stage 'loud' failed at item 0" in summary["error"]
    assert summary["stages"]["loud"]["failures"] == {"OSError": ["OSError: the server is gone"]}


def test_a_run_that_its_settings_stop_says_one_line_and_exits_with_1(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A gate that closes is no crash: no traceback, no item of a stage."""
    with pytest.raises(SystemExit) as ended:
        main(["run", "own.py:stopping", "--options.name", "stopped"])
    assert ended.value.code == 1
    assert capsys.readouterr().err == "headrace: stopped: expected a reward; got none at step 1; widen it\n"
    summary = json.loads((own / "runs" / "stopped" / "summary.json").read_text())
    assert summary["status"] == "stopped"
    assert summary["error"] == "GateClosed: expected a reward; got none at step 1; widen it"
