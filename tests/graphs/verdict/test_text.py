"""What a verdict reads like: of a run in virtual time, whose bottleneck is known."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from flow import Graph
from flow.explain import Verdict, explain
from flow.testing import Collected, simulate
from flow.trace import PerfettoWriter, read_trace
from graphs.cli import main
from graphs.verdict.compared import pairs
from graphs.verdict.text import told, wrapped


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Trace of 20 numbers, on which one worker of ``slow`` is at work for a second each."""

    async def slow(value: int, context: Any) -> int:
        with context.span("search", engine="local" if value % 2 else "remote"):
            await asyncio.sleep(1.0)
        return value

    graph = Graph("line")
    _ = graph.source("numbers", range(20)) >> graph.stage("slow", slow) >> graph.sink("end", Collected())
    path = tmp_path / "run.pftrace"
    with PerfettoWriter(path, clock=lambda: 0) as writer:
        writer.count(writer.counter("odd", "tokens/s", writer.track("graph line")), float("nan"), 0)
        simulate(graph, recorder=writer)
    return path


@pytest.fixture
def verdict(trace: Path) -> Verdict:
    return explain(read_trace(trace))


def test_the_answer_comes_first_and_everything_fits_80_columns(verdict: Verdict) -> None:
    lines = told(verdict).splitlines()
    assert lines[2] == "== line: 20 items in 20 s, 1 s each =="
    assert lines[3].startswith("Bounded by slow, 100% of the critical path. Slow twice as fast: +100%")
    assert "end waited 100% of the time. In the end for:" in lines
    assert "   100%  slow at work" in lines
    assert max(len(line) for line in lines) <= 80


@pytest.fixture
def cut(tmp_path: Path) -> Path:
    """A run of 3,000 numbers, of a second each, whose trace outgrew its bound; beside it lies a worker's slice over all."""
    graph, now_ns = Graph("line"), [0]

    async def slow(value: int, context: Any) -> int:
        await asyncio.sleep(1.0)
        now_ns[0] = int(asyncio.get_running_loop().time() * 1e9)
        if value % 50 == 0:
            writer.flush()
        return value

    async def whole(value: int, context: Any) -> None:
        await asyncio.sleep(2_990)

    numbers = graph.source("numbers", range(3_000))
    _ = numbers >> graph.stage("slow", slow) >> graph.sink("end", Collected())
    _ = graph.source("one", range(1)) >> graph.sink("whole", whole)
    with PerfettoWriter(tmp_path / "run.pftrace", clock=lambda: now_ns[0], max_bytes=150_000) as writer:
        simulate(graph, recorder=writer)
    return tmp_path


def test_a_time_whose_files_are_gone_is_told_and_what_lies_before_and_behind_is_judged_apart(cut: Path) -> None:
    """What was at work all the while does not tie them together."""
    trace = read_trace(cut)
    (gap,) = trace.gaps
    assert not any((cut / name).exists() for name in gap.missing)
    assert gap.missing[0] == "run.part1.pftrace"
    verdict = explain(trace)
    first, last = verdict.graphs
    assert [(each.piece, each.pieces) for each in verdict.graphs] == [(1, 2), (2, 2)]
    unseen = verdict.unseen[0].seconds
    assert unseen > 500
    assert first.seconds + last.seconds + unseen == pytest.approx(3_000, rel=0.01)
    assert (first.bound and first.bound.name, last.bound and last.bound.name) == ("slow", "slow")
    lines = told(verdict).splitlines()
    assert lines[1].startswith("warning: ")
    assert "run.part1.pftrace to" in " ".join(lines[1:5])
    assert "outside of any graph" not in lines[0]
    assert any(line.startswith("== line (2 of 2): ") for line in lines)
    assert max(len(line) for line in lines) <= 80
    longest = max(verdict.graphs, key=lambda graph: graph.seconds)
    assert [*pairs(verdict, verdict)] == [(longest, longest)]


def test_work_is_told_apart_by_what_few_values_tell(verdict: Verdict) -> None:
    text = told(verdict)
    assert "slow > search engine=local" in text
    assert "slow > search engine=remote" in text


def test_a_script_can_read_also_what_is_not_finite(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """S43: a counter that stood at NaN."""
    main(["trace", str(trace), "--json"])
    found = json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    levels = {level["name"]: level["mean"] for level in found["verdict"]["graphs"][0]["levels"]}
    assert levels["odd"] == "nan"


def test_a_paragraph_is_broken_between_words() -> None:
    lines = list(wrapped("word " * 40, "1. ", "   "))
    assert lines[0].startswith("1. word")
    assert lines[1].startswith("   word")
    assert max(len(line) for line in lines) <= 80
    assert " ".join(" ".join(lines).split()) == "1. " + "word " * 39 + "word"
