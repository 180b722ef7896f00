"""What a verdict reads like: of a run in virtual time, whose bottleneck is known."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from flow import Collect, Graph
from flow.explain import Verdict, explain
from flow.testing import Collected, simulate
from flow.trace import PerfettoWriter, read_trace, trace_file
from graphs.cli import main
from graphs.report.record import RunRecord
from graphs.report.verdict import verdict_of
from graphs.verdict.compared import compared, pairs
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
    assert lines[2] == "== line: 20 items in 20 s, a mean of 1 s each =="
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
    side_by_side = compared(verdict, verdict, (), ("runs/a", "runs/b")).splitlines()
    assert sum(line.startswith("warning: of runs/") for line in side_by_side) == 2
    assert any(line.split() == ["piece,", "the", "longest", *[f"{longest.piece}", "of", "2"] * 2] for line in side_by_side)
    assert any(line.startswith("of the piece ") for line in side_by_side)
    assert max(map(len, side_by_side)) <= 80


def test_a_beginning_that_is_gone_is_told_and_what_is_left_is_one_piece(cut: Path) -> None:
    (cut / "run.pftrace").unlink()
    verdict = explain(read_trace(cut))
    (unseen,) = verdict.unseen
    assert (unseen.seconds, unseen.missing[:2]) == (0.0, ("run.pftrace", "run.part1.pftrace"))
    assert [(each.piece, each.pieces) for each in verdict.graphs] == [(1, 1)]
    assert told(verdict).splitlines()[1].startswith("warning: the beginning is not judged, and how long it took is not known")


def test_the_report_and_the_json_tell_what_is_not_judged(cut: Path, capsys: pytest.CaptureFixture[str]) -> None:
    verdict = explain(read_trace(cut))
    found = verdict_of(RunRecord(cut))
    assert found is not None
    assert found.lead.startswith("warning: ")
    longest = max(verdict.graphs, key=lambda graph: graph.seconds)
    assert f"== line ({longest.piece} of 2): " in found.lead
    main(["trace", str(cut), "--json"])
    printed = json.loads(capsys.readouterr().out)["verdict"]
    (unseen,) = printed["unseen"]
    assert unseen["missing"] == list(verdict.unseen[0].missing)
    assert unseen["seconds"] == pytest.approx(verdict.unseen[0].seconds)
    assert [(each["piece"], each["pieces"]) for each in printed["graphs"]] == [(1, 2), (2, 2)]


def test_the_pause_between_two_starts_is_told_as_such_and_as_no_loading(tmp_path: Path, monkeypatch) -> None:
    """20 s at work, 100 s without a process, 20 s at work: by the wall clock, as two starts share no other."""

    async def slow(value: int, context: Any) -> int:
        await asyncio.sleep(1.0)
        return value

    for attempt, began_ns in enumerate((10**18, 10**18 + 120 * 10**9)):
        graph = Graph("line")
        _ = graph.source("numbers", range(20)) >> graph.stage("slow", slow) >> graph.sink("end", Collected())
        monkeypatch.setattr(time, "time_ns", lambda began_ns=began_ns: began_ns)
        with PerfettoWriter(trace_file(tmp_path, attempt), clock=lambda: 0) as writer:
            simulate(graph, recorder=writer)
    verdict = explain(read_trace(tmp_path))
    assert [(each.seconds, each.missing) for each in verdict.unseen] == [(pytest.approx(100), ())]
    assert [(each.seconds, each.piece, each.pieces) for each in verdict.graphs] == [
        (pytest.approx(20), 1, 2),
        (pytest.approx(20), 2, 2),
    ]
    lines = told(verdict).splitlines()
    assert lines[0].endswith(" slices over 140 s")
    assert lines[1] == "100 s of it between one start of the run and the next (1)"
    assert not any(line.startswith("warning") for line in lines)


def test_a_graph_that_takes_no_steps_is_told_in_items_whose_times_add_up(tmp_path: Path) -> None:
    """As an evaluation: four at a time and a second each, so that three of four come no time after the one before."""

    async def slow(value: int, context: Any) -> int:
        await asyncio.sleep(1.0)
        return value

    graph = Graph("after")
    _ = graph.source("numbers", range(20)) >> graph.stage("episodes", slow, workers=4) >> graph.sink("scores", Collected())
    with PerfettoWriter(tmp_path / "run.pftrace", clock=lambda: 0) as writer:
        simulate(graph, recorder=writer)
    verdict = explain(read_trace(tmp_path))
    (found,) = verdict.graphs
    assert (found.unit, found.steps, found.step) == ("item", 20, pytest.approx(0.25))
    text = told(verdict)
    assert "== after: 20 items in 5 s, a mean of 250 ms each ==" in text
    assert "from the last item back" in text
    assert "items a second" in text
    assert "step" not in text.replace("headrace", "")
    assert "(--evaluate.max-concurrency)" in " ".join(text.split())
    side_by_side = compared(verdict, verdict, (), ("a", "b"))
    assert "an item, mean " in side_by_side
    assert "step" not in side_by_side


def test_steps_of_a_sink_that_collects_are_told_with_their_median(tmp_path: Path) -> None:
    """Of 1, 1 and 4 s: their mean would be of none of them."""
    lengths = iter([1.0, 1.0, 4.0])

    class Steps:
        async def add(self, value: int, context: Any) -> None:
            pass

        async def finish(self, context: Any) -> None:
            await asyncio.sleep(next(lengths))

    graph = Graph("rl")
    _ = graph.source("numbers", range(20)) >> graph.sink("trainer", Steps(), collect=Collect(2, steps=3))
    with PerfettoWriter(tmp_path / "run.pftrace", clock=lambda: 0) as writer:
        simulate(graph, recorder=writer)
    verdict = explain(read_trace(tmp_path))
    assert "== rl: 3 steps in 6 s, a median of 1 s each ==" in told(verdict)
    assert "steps a second" in told(verdict)
    assert "larger mesh for the trainer" in told(verdict)


def test_how_full_a_pool_was_is_told_with_whose_permits(tmp_path: Path) -> None:
    """One unit of two, all the time."""

    async def inside(value: int, context: Any) -> int:
        async with context.permit("desk"):
            await asyncio.sleep(1.0)
        return value

    graph = Graph("line", pools={"desk": 2})
    _ = graph.source("numbers", range(20)) >> graph.stage("inside", inside) >> graph.sink("end", Collected())
    with PerfettoWriter(tmp_path / "run.pftrace", clock=lambda: 0) as writer:
        simulate(graph, recorder=writer)
    lines = told(explain(read_trace(tmp_path))).splitlines()
    assert "pool desk, 2 units: 50% of them held; by permits inside attempts: inside 50%" in lines


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
