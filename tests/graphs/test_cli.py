"""Everything a user can get wrong is told at the start, with exit status 2, and leaves nothing behind."""

from pathlib import Path

import pytest

from graphs.cli import main

BROKEN = """
from flow import Context, Graph

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
    places = [drawn.index(stage, drawn.index("graph grpo")) for stage in stages]
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


def test_a_misspelt_name_is_answered_with_the_nearest(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """S105."""
    assert "did you mean 'calculator'?" in refused(capsys, "run", "calculater")
    assert "did you mean 'run'?" in refused(capsys, "rum", "calculator")
    assert "did you mean 'fine'?" in refused(capsys, "check", "own.py:fin")


def test_an_unknown_key_is_answered_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    """S105: misspelt, at the wrong level, of the wrong type."""
    assert "--grpo.steps" in refused(capsys, "run", "calculator", "--grpo.stps", "3")
    assert "Unrecognized" in refused(capsys, "run", "calculator", "--group-size", "3")
    assert "many" in refused(capsys, "run", "calculator", "--grpo.steps", "many")


def test_a_value_out_of_range_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert "greater than or equal to 1" in refused(capsys, "run", "calculator", "--grpo.steps", "0")


def test_a_broken_row_is_told_with_its_number_and_nothing_is_written(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """S106."""
    (own / "tasks.jsonl").write_text('{"id": "a", "prompt": "1+1", "answer": "2"}\n{"id": "b", "prompt": 7}\n')
    (own / "model.gguf").write_bytes(b"")
    text = refused(capsys, "run", "grpo", "--policy.gguf", "model.gguf", "--tasks.train", "tasks.jsonl")
    assert "tasks.jsonl" in text
    assert "2" in text
    assert not (own / "runs").exists()


def test_a_prompt_longer_than_the_context_is_told_and_nothing_is_written(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = refused(capsys, "run", "calculator", "--engine.context-length", "6", "--options.name", "long")
    assert "expected prompts of at most 5 tokens" in text
    assert not (own / "runs").exists()


def test_a_model_that_is_not_there_is_told(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--policy.gguf PATH" in refused(capsys, "run", "smollm2")
    assert "does not exist" in refused(capsys, "run", "smollm2", "--policy.gguf", "nowhere.gguf")


def test_a_used_run_name_is_refused(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (own / "runs" / "old").mkdir(parents=True)
    (own / "runs" / "old" / "metrics.jsonl").write_text("")
    assert "choose another" in refused(capsys, "run", "own.py:fine", "--options.name", "old")


def test_a_run_that_is_not_there_cannot_be_evaluated(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "config.json" in refused(capsys, "eval", "runs/none")
