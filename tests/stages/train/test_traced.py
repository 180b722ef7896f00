"""The trainer's own track in the trace: what else a step may consist of, and a shape that nobody compiled ahead."""

from pathlib import Path

import pytest

from flow.trace import PerfettoWriter, Slice, read_trace, recording
from stages.losses.policy import PolicyLoss

pytestmark = pytest.mark.slow  # It compiles.


def slices_of(folder: Path) -> list[Slice]:
    trace = read_trace(folder)
    return [each for each in trace.slices if trace.tracks[each.track].name == "trainer"]


def test_passes_over_a_step_and_an_optimizer_at_rest_in_the_hosts_memory_are_shown(train, batches, tmp_path: Path):
    """Two updates a step: both compare with log-probabilities of before it, and each moves the state there and back."""
    with PerfettoWriter(tmp_path / "run.pftrace") as recorder, recording(recorder):
        loss = PolicyLoss(against="proximal")
        ran = train([batches([3, 1]), batches([2, 2], 1)], loss=loss, optimizer_memory="host", num_minibatches=2)
    slices = slices_of(tmp_path)
    whole = [each for each in slices if each.depth == 0]
    assert whole[0].name == "open"
    first = [each.name for each in whole[1:] if each.args["step"] == 1]
    assert first[0] == "proximal"
    assert (first.count("update"), first.count("publish"), first[-1]) == (2, 1, "publish")
    assert first.count("gradient") == ran.rows[0]["microbatches"]
    moved = [each.args["to"] for each in slices if each.name == "transfer"]
    assert moved[-8:] == ["device", "host"] * 4
    updates = [each for each in whole if each.name == "update"]
    inside = [each for each in slices if each.name == "transfer" and each.depth == 1][-8:]
    for update, pair in zip(updates, zip(inside[::2], inside[1::2], strict=True), strict=True):
        assert update.start_ns <= pair[0].start_ns < pair[1].end_ns <= update.end_ns
    compiled = {(each.args["program"], each.args.get("shape")) for each in slices if each.name == "compile"}
    assert {("gradient", "2x12"), ("proximal", "2x12"), ("update", None)} <= compiled
