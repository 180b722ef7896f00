"""The devices in the trace of a real run: who computed when, and what its metrics say of the same."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from flow.trace import Slice, Trace, read_trace

pytestmark = pytest.mark.slow  # A whole run.


@pytest.fixture(scope="module")
def trace(finished: Path) -> Trace:
    return read_trace(finished / "run.pftrace")


@pytest.fixture(scope="module")
def rows(finished: Path) -> list[dict[str, Any]]:
    """Of the steps."""
    every = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()]
    return [row for row in every if row["stage"] == "trainer"]


def on(trace: Trace, track: str) -> list[Slice]:
    return [each for each in trace.slices if trace.tracks[each.track].name == track]


def values(trace: Trace, counter: str) -> list[float]:
    (number,) = (number for number, track in trace.tracks.items() if track.name == counter)
    return [each.value for each in trace.counts if each.track == number]


def seconds(slices: list[Slice]) -> float:
    return sum(each.end_ns - each.start_ns for each in slices) / 1e9


def test_the_trainers_track_tells_compiling_from_work(trace: Trace) -> None:
    """Each phase that trains opens a trainer, which compiles each program once, with its shape; no step compiles anything."""
    slices = on(trace, "trainer")
    opened = [each for each in slices if each.name == "open"]
    assert len(opened) == 2
    compiled = [each for each in slices if each.name == "compile"]
    announced = [each for each in compiled if each.args["program"] in ("gradient", "update")]
    assert Counter(each.args["program"] for each in announced) == {"gradient": 2, "update": 2}
    assert {each.args.get("shape") for each in announced if each.args["program"] == "gradient"} == {"4x64"}
    for each in compiled:
        assert any(whole.start_ns <= each.start_ns and each.end_ns <= whole.end_ns for whole in opened), each


def test_the_work_of_each_step_is_on_the_trainers_track_as_long_as_its_row_says(
    trace: Trace, rows: list[dict[str, Any]]
) -> None:
    slices = on(trace, "trainer")
    for name, metric in (("gradient", "gradient_s"), ("update", "update_s")):
        told = sum(row[metric] for row in rows)  # which has what is counted on the host besides
        assert 0.5 * told < seconds([each for each in slices if each.name == name]) <= told
    assert len([each for each in slices if each.name == "gradient"]) == sum(row["microbatches"] for row in rows)
    assert sorted(each.args["step"] for each in slices if each.name == "publish") == sorted(row["step"] for row in rows)
    rates = [value for value in values(trace, "trainer trained") if value]
    assert rates == [pytest.approx(row["tokens_per_second"]) for row in rows if row["tokens_per_second"]]
    assert values(trace, "trainer trained")[-1] == 0, "nothing is trained in the evaluation afterwards"


def test_the_row_of_a_step_tells_no_memory_of_a_device_that_does_not_tell(rows: list[dict[str, Any]]) -> None:
    assert {(row["device_bytes"], row["device_peak_bytes"]) for row in rows} == {(None, None)}


def test_an_arrow_leads_from_each_turn_of_an_episode_to_the_slot_that_made_it(trace: Trace) -> None:
    """So one can go from a task to its turns: the turn lies in the slice of the episode, which has the item's arrow."""
    slots = {number for number, track in trace.tracks.items() if track.name.startswith("slot ")}
    requests = {flow: each for each in trace.slices if each.track in slots for flow in each.flows}
    models = [each for each in trace.slices if each.name == "model"]
    assert len(models) > 50
    for model in models:
        (arrow,) = model.flows
        request = requests.pop(arrow)
        assert model.start_ns <= request.start_ns < request.end_ns <= model.end_ns
        assert request.args["turn"] == model.args["turn"]
        assert request.args["prompt"] == model.args["context_tokens"]
    assert requests == {}, "no other episode was sampled"


def test_what_a_reply_told_lies_inside_its_turn(trace: Trace) -> None:
    models = [each for each in trace.slices if each.name == "model"]
    lanes = {each.track for each in models}
    parts = [each for each in trace.slices if each.track in lanes and each.name in ("queue", "prefill", "decode")]
    assert len(parts) == 3 * len(models)
    assert 0.5 * seconds(models) < seconds(parts) <= seconds(models)


def test_every_token_that_was_sampled_lies_in_a_slot_and_in_a_step(trace: Trace) -> None:
    slots = {number for number, track in trace.tracks.items() if track.name.startswith("slot ")}
    decoded = sum(each.args["tokens"] for each in on(trace, "engine") if each.name == "decode")
    assert decoded == sum(each.args["sampled"] for each in trace.slices if each.track in slots)


def test_compiled_programs_are_counted(trace: Trace) -> None:
    counted = values(trace, "compiled programs")
    assert counted[0] == 0
    assert counted == sorted(counted)
