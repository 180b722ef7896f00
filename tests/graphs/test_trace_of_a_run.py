"""The trace of a real run, read with Perfetto's own messages and with nothing of ours."""

from collections import defaultdict
from pathlib import Path

import perfetto.protos.perfetto.trace.perfetto_trace_pb2 as pb
import pytest

pytestmark = pytest.mark.slow

BEGIN, END = pb.TrackEvent.TYPE_SLICE_BEGIN, pb.TrackEvent.TYPE_SLICE_END


@pytest.fixture(scope="session")
def trace(finished: Path) -> pb.Trace:
    trace = pb.Trace()
    trace.ParseFromString((finished / "run.pftrace").read_bytes())
    return trace


def events(trace: pb.Trace) -> dict[int, list[tuple[int, int, int]]]:
    """(time, type, name id) of each event, by track, in the order of the file."""
    found: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for packet in trace.packet:
        if packet.HasField("track_event"):
            event = packet.track_event
            found[event.track_uuid].append((packet.timestamp, event.type, event.name_iid))
    return found


def test_every_event_is_on_a_declared_track(trace: pb.Trace) -> None:
    declared = {packet.track_descriptor.uuid for packet in trace.packet if packet.HasField("track_descriptor")}
    assert set(events(trace)) <= declared


def test_time_never_goes_back_within_a_track(trace: pb.Trace) -> None:
    for track, happened in events(trace).items():
        times = [time for time, _, _ in happened]
        assert times == sorted(times), track


def test_slices_nest_and_all_are_closed(trace: pb.Trace) -> None:
    num_slices = 0
    for track, happened in events(trace).items():
        depth = 0
        for _, kind, _ in happened:
            depth += {BEGIN: 1, END: -1}.get(kind, 0)
            num_slices += kind == BEGIN
            assert depth >= 0, track
        assert depth == 0, track
    assert num_slices > 1000


def test_every_stage_of_the_graph_has_spans(trace: pb.Trace) -> None:
    names: dict[int, str] = {}
    for packet in trace.packet:
        for entry in packet.interned_data.event_names:
            names[entry.iid] = entry.name
    named = {names[name] for happened in events(trace).values() for _, kind, name in happened if kind == BEGIN}
    assert {"prompts", "members", "episodes", "groups", "rewards", "advantages", "batches", "trainer"} <= named


def test_arrows_lead_from_an_episode_to_its_group_and_on_to_its_step(trace: pb.Trace) -> None:
    """An id that occurs on several slices draws an arrow through them."""
    tracks = {
        packet.track_descriptor.uuid: (packet.track_descriptor.name or packet.track_descriptor.static_name)
        for packet in trace.packet
        if packet.HasField("track_descriptor")
    }
    through: dict[int, set[str]] = defaultdict(set)
    for packet in trace.packet:
        for flow in packet.track_event.flow_ids:
            through[flow].add(tracks[packet.track_event.track_uuid].split("/")[0])
    assert any({"members", "episodes", "groups"} <= stages for stages in through.values())
    assert any({"members", "groups", "rewards", "batches", "trainer"} <= stages for stages in through.values())


def test_no_arrow_leads_from_one_graph_to_another(trace: pb.Trace) -> None:
    """Item numbers start anew in each graph of a program; arrows must not. Those of turns and versions lead out of graphs."""
    described = {p.track_descriptor.uuid: p.track_descriptor for p in trace.packet if p.HasField("track_descriptor")}

    def graph_of(track: int) -> str | None:
        while track in described:
            name = described[track].name or described[track].static_name
            if name.startswith("graph "):
                return name
            track = described[track].parent_uuid
        return None

    reached: dict[int, set[str | None]] = defaultdict(set)
    for packet in trace.packet:
        for flow in packet.track_event.flow_ids:
            reached[flow].add(graph_of(packet.track_event.track_uuid))
    assert len({graph for graphs in reached.values() for graph in graphs} - {None}) >= 3
    assert all(len(graphs - {None}) <= 1 for graphs in reached.values())
