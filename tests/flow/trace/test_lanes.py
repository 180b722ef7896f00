"""Lanes keep overlapping things apart and their number down."""

import random

import pytest

from flow.trace import Lanes, PerfettoWriter, read_trace


def test_overlapping_episodes_keep_their_lengths(tmp_path):
    """S101: 4 overlapping episodes take a track each, and the lengths read back equal the true ones."""
    spans = {"a": (0, 100), "b": (10, 40), "c": (20, 300), "d": (30, 50)}
    moments = sorted([(start, 1, name) for name, (start, _) in spans.items()] + [(end, 0, n) for n, (_, end) in spans.items()])
    with PerfettoWriter(tmp_path / "t") as writer:
        lanes, held = Lanes(writer, "episode"), {}
        for at_ns, begins, name in moments:
            if begins:
                held[name] = lanes.take()
                writer.begin(held[name], name, at_ns)
            else:
                writer.end(held[name], at_ns)
                lanes.give(held[name])
    trace = read_trace(tmp_path / "t")
    assert {s.name: (s.start_ns, s.end_ns) for s in trace.slices} == spans
    assert all(s.depth == 0 for s in trace.slices)
    assert len({s.track for s in trace.slices}) == 4


def test_there_are_as_many_lanes_as_were_ever_open_at_once(tmp_path):
    """The most open at once is counted here beside the lanes, over a random run of takes and gives."""
    draw = random.Random(0)
    with PerfettoWriter(tmp_path / "t") as writer:
        lanes, held, most = Lanes(writer, "group", writer.track("groups")), [], 0
        for _ in range(500):
            if held and draw.random() < 0.5:
                lanes.give(held.pop(draw.randrange(len(held))))
            else:
                held.append(lanes.take())
                assert len(set(held)) == len(held)
            most = max(most, len(held))
    tracks = [t for t in read_trace(tmp_path / "t").tracks.values() if t.name.startswith("group ")]
    assert [(t.name, t.rank) for t in tracks] == [(f"group {n}", n) for n in range(most)]


def test_giving_back_what_is_not_held_is_refused(tmp_path):
    lanes = Lanes(PerfettoWriter(tmp_path / "t"), "lane")
    track = lanes.take()
    lanes.give(track)
    with pytest.raises(AssertionError, match="is not held"):
        lanes.give(track)
