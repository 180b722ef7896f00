"""``headrace chat``: a policy answers at a terminal, or in a pipe, one question a line. The talk itself is ``talk.py``."""

import asyncio
import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field
from rich.console import Console

from graphs.commands.talk import Answer, Talk
from graphs.model_and_chat import describe_both
from graphs.model_source import find_model
from graphs.runs.saved import is_run, saved_program
from stages.envs.environment import opening_messages
from stages.models.pretrained import fill_model
from stages.models.transformer import Transformer
from stages.records import Message, Task
from stages.rollout.config import EngineConfig
from stages.rollout.engine import Engine
from stages.text.chat import Chat

LONGEST_DEFAULT = 1024
"""Most tokens of context where none was asked for: the cache is allocated, and read in each step, as a whole."""
PREFILL_CHUNK = 64
HINT = "Ctrl-C cuts an answer, /new starts over, /quit or Ctrl-D ends"


class ChatConfig(BaseModel):
    """How answers are given."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    system: str | None = None
    """System message; ``None`` leaves it to the chat template, or to the run's own settings."""
    temperature: float = Field(default=0.7, ge=0.0)
    """Divides the logits; 0 takes the most likely token each time."""
    max_tokens: int = Field(default=512, ge=1)
    """Most tokens of one answer."""
    seed: int = Field(default=0, ge=0, lt=2**31)
    """Decides every random draw: the same questions in the same order get the same answers."""
    context: int | None = Field(default=None, ge=2)
    """Most tokens of a whole talk; ``None`` takes what the model is meant for, up to 1024."""
    revision: str | None = None
    """Commit, branch or tag of a model on the Hub; ``None`` takes its main branch."""


@dataclass(frozen=True)
class Speaker:
    """What answers: a model that is yet to be loaded, its format, and how a talk with it begins."""

    model: Transformer
    load: Callable[[], object]
    chat: Chat
    opening: Callable[[str], Sequence[Message]]


def find_speaker(name: str, config: ChatConfig) -> Speaker:
    """A pretrained model, or what a run learned.

    Args:
        name: folder, file or repository of a model, or the folder of a run.
        config: see ``ChatConfig``.

    Raises:
        ValueError, LookupError, OSError, ImportError: there is no such model or run, or it cannot be read.
    """
    if is_run(Path(name)):
        parts = saved_program(Path(name)).parts
        assert parts is not None, "every ready program has parts"

        def opening(question: str) -> Sequence[Message]:
            task = Task("talk", question)
            return parts.opening(task) if config.system is None else opening_messages(task, config.system)

        return Speaker(parts.model, parts.load, parts.chat, opening)
    path = find_model(name, config.revision, "MODEL").path
    model, chat = describe_both(path)
    return Speaker(
        model, lambda: fill_model(model, path), chat, lambda question: opening_messages(Task("talk", question), config.system)
    )


def hold_chat(speaker: Speaker, config: ChatConfig, console: Console) -> None:
    """Load the model and answer line after line, until there are no more.

    Raises:
        ValueError: in a pipe, a question that does not fit the context.
        KeyboardInterrupt: in a pipe.
    """
    live = sys.stdin.isatty() and console.is_terminal
    with asyncio.Runner() as runner:
        with console.status("loading the model") if live else contextlib.nullcontext():
            speaker.load()
            engine = Engine(speaker.model, engine_config(speaker.model, config))
            runner.run(engine.__aenter__())
        talk = Talk(
            engine, speaker.chat, speaker.opening,
            temperature=config.temperature, max_tokens=config.max_tokens, seed=config.seed,
        )  # fmt: skip
        try:
            answer_lines(talk, runner, typed_lines(console) if live else sys.stdin, console, live=live)
        finally:
            runner.run(engine.__aexit__())


def engine_config(model: Transformer, config: ChatConfig) -> EngineConfig:
    """An engine for one talk at a time."""
    length = config.context or min(model.config.context_length, LONGEST_DEFAULT)
    return EngineConfig(slots=1, prefill_rows=1, prefill_chunk=min(PREFILL_CHUNK, length), context_length=length)


def answer_lines(talk: Talk, runner: asyncio.Runner, lines: Iterable[str], console: Console, *, live: bool) -> None:
    """Answer each line.

    Args:
        talk: the conversation.
        runner: its loop. An interrupt in it cuts the answer.
        lines: questions and commands.
        console: where answers go.
        live: whether a person sits there: an interrupt or a question too long is then told, and the talk goes on.
    """
    for line in lines:
        question = line.strip()
        if question == "/quit":
            return
        if question == "/new":
            talk.restart()
        elif question:
            try:
                answer = runner.run(talk.answer(question, lambda text: _write(console, text)))
            except (KeyboardInterrupt, ValueError) as error:
                if not live:
                    raise
                _note(console, "\n(cut)" if isinstance(error, KeyboardInterrupt) else str(error))
                continue
            _write(console, "\n")
            if live:
                _note(console, figures(answer))


def figures(answer: Answer) -> str:
    """Speed of an answer as a line, and what cut it short."""
    speed = "" if answer.tokens_per_second is None else f"{answer.tokens_per_second:.1f} tokens/s, "
    cut = {"stop": "", "length": f"; cut at {answer.num_tokens} tokens", "context": "; cut where the context is full"}
    return f"({speed}first token after {answer.first_s:.2f} s{cut[answer.ended]})"


def typed_lines(console: Console) -> Iterator[str]:
    """Lines typed at a prompt, until the end of input. An interrupt clears the line."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 (gives input() its editing)
    _note(console, HINT)
    while True:
        try:
            line = input("> ")
        except KeyboardInterrupt:
            _write(console, "\n")
            continue
        except EOFError:
            _write(console, "\n")
            return
        yield line


def _write(console: Console, text: str) -> None:
    console.file.write(text)
    console.file.flush()


def _note(console: Console, text: str) -> None:
    console.print(text, style="dim", highlight=False, markup=False, soft_wrap=True)
