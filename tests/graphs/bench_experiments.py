"""Experiments small enough for tests.

``python bench_experiments.py words,study bench all`` is ``headrace bench all`` with these two in place of its own.

``words`` measures a real graph. The others are ways in which an experiment can go wrong.
"""

import asyncio
import math
import os
import signal
import sys
import time
from collections.abc import Callable

from pydantic import BaseModel, ConfigDict, Field

from flow import Context, Graph, Run
from graphs.bench.experiment import Claim, Column, Experiment, Findings, Table, Tell
from graphs.report.plots import Plot
from graphs.report.series import Series


class WordsConfig(BaseModel):
    """How much there is to do."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    words: int = Field(default=40, ge=1)
    """Items, at least 1."""
    wanted: int | None = None
    """Items that are to come out; None for as many as go in."""


async def shout(word: str, context: Context) -> str:
    return word.upper()


def measure(config: WordsConfig, tell: Tell) -> Findings:
    kept: list[tuple[float, str]] = []
    began = time.perf_counter()

    def keep(word: str, context: Context) -> None:
        kept.append((time.perf_counter() - began, word))

    graph = Graph("words")
    (
        graph.source("words", [f"word {at}" for at in range(config.words)])
        >> graph.stage("loud", shout)
        >> graph.sink("kept", keep)
    )
    tell(0, 1, "a graph of three nodes")
    summary = asyncio.run(Run(graph.build(quiet=True)).finish())
    taken = summary.nodes["kept"].taken
    seconds = kept[-1][0]
    rows = [
        {"stage": name, "taken": node.taken, "rate": node.taken / seconds, "gaps": None} for name, node in summary.nodes.items()
    ]
    columns = [
        Column("stage", "stage"),
        Column("taken", "items"),
        Column("rate", "rate", "items/s"),
        Column("gaps", "gaps", "s"),
    ]
    return Findings(
        answer=f"{taken} of {config.words} words came out, all of them loud: `max_lag` has no part in it.",
        claims=[
            Claim("words that came out", taken, config.words if config.wanted is None else config.wanted, "equal"),
            Claim("share that is loud", sum(word.isupper() for _, word in kept) / len(kept), 1.0, "least"),
            Claim("words a second", taken / seconds),
        ],
        tables=[Table("each stage | node", columns, rows, note="a source takes nothing")],
        plots=[Plot("Words out", "over time", [float(at) for at in range(taken)], [Series("words", [at for at, _ in kept])])],
        notes=["One graph, no model."],
        detail={"not finite": [math.nan, math.inf, -math.inf], "of one": {"text": "nan"}},
    )


def die(config: WordsConfig, tell: Tell) -> Findings:
    os.kill(os.getpid(), signal.SIGKILL)
    return measure(config, tell)


def fail(config: WordsConfig, tell: Tell) -> Findings:
    raise RuntimeError("the tool is gone")


def named(name: str, run: Callable[[WordsConfig, Tell], Findings] = measure, *, long: bool = False) -> Experiment:
    question = "Do words come out loud? Each goes through a real graph, and what comes out is counted."
    return Experiment(name, f"{name}: words through a graph", question, WordsConfig, WordsConfig(words=8), run, long)


EXPERIMENTS = {
    "words": named("words"),
    "dying": named("dying", die),
    "failing": named("failing", fail),
    "study": named("study", long=True),
}

if __name__ == "__main__":
    from graphs.bench import suite
    from graphs.cli import main
    from graphs.commands import bench_all

    _, names, *arguments = sys.argv
    suite.EXPERIMENTS.clear()  # pyright: ignore
    suite.EXPERIMENTS.update({name: EXPERIMENTS[name] for name in names.split(",")})  # pyright: ignore
    bench_all.here = lambda: (sys.executable, __file__, names)
    main(arguments)
