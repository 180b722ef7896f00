"""``headrace trace``: reads the trace of a run and says in words what bounded it, or what changed from another run.

What is found is ``flow.explain``'s; the words are those of ``graphs.verdict``. With ``--json`` scripts get both.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from flow.explain import Verdict, explain
from flow.trace import TraceError, read_trace
from graphs.runs.json_rows import encode
from graphs.runs.saved import saved_config
from graphs.verdict.advice import advised
from graphs.verdict.compared import Setting, compared, differing
from graphs.verdict.names import SERVERS
from graphs.verdict.text import told


@dataclass(frozen=True)
class TraceOptions:
    """What is made of a trace."""

    compare: Path | None = None
    """Another run or trace, to be told what changed; None tells of the one alone."""
    json: bool = False
    """Print it as one line of JSON, for scripts; docs/verdict.md has the names."""


def prepare_trace(path: Path, options: TraceOptions) -> Callable[[], None]:
    """Read what there is, and give what prints it.

    Args:
        path: of a run, or of a file of its trace.
        options: what is made of it.

    Raises:
        LookupError: there is nothing at a path, or no trace.
    """
    one = _read(path)
    if options.compare is None:
        return lambda: _print(_as_json(path, one) if options.json else told(one), plain=options.json)
    other, settings = _read(options.compare), _settings(path, options.compare)

    def compare() -> None:
        if options.json:
            sides = {"one": _side(path, one), "other": _side(options.compare or path, other)}
            _print(encode({**sides, "settings": settings}).decode(), plain=True)
        else:
            _print(compared(one, other, settings, (str(path), str(options.compare))), plain=False)

    return compare


def _read(path: Path) -> Verdict:
    try:
        verdict = explain(read_trace(path), SERVERS)
    except TraceError as error:
        raise LookupError(str(error)) from error
    if not verdict.graphs:
        raise LookupError(
            f"expected a trace in which a graph has worked, got one of {verdict.slices} slices, in '{path}'; let the run get "
            "to its first phase"
        )
    return verdict


def _settings(one: Path, other: Path) -> tuple[Setting, ...]:
    """Settings of two runs that differ; nothing of files without their run."""
    try:
        configs = [saved_config(path if path.is_dir() else path.parent)["config"] or {} for path in (one, other)]
    except (LookupError, ValueError, OSError):
        return ()
    return tuple(differing(*configs))


def _side(path: Path, verdict: Verdict) -> dict[str, Any]:
    advice = [advised(graph, verdict) for graph in verdict.graphs]
    return {"path": str(path), "verdict": verdict, "advice": advice}


def _as_json(path: Path, verdict: Verdict) -> str:
    return encode(_side(path, verdict)).decode()


def _print(text: str, *, plain: bool) -> None:
    if plain:
        sys.stdout.write(f"{text}\n")
        return
    console = Console(soft_wrap=True)
    for line in text.splitlines():
        console.print(line, style=_style(line), highlight=False, markup=False)


def _style(line: str) -> str | None:
    """On a terminal: where one looks first."""
    if line.startswith("=="):
        return "bold"
    return "yellow" if line.startswith(("Bounded", "bounded", "Try next", "warning")) else None
