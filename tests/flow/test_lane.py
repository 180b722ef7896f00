"""One worker's time as marks, and what becomes of them: shares that add up, and slices that are those of the work."""

import pytest

from flow._arrows import flow_id
from flow._core.item import Item
from flow._core.meter import Meter
from flow._lane import Lane, Stretch


class Time:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Noted:
    """A recorder that keeps the slices of a series, as the writer would read them."""

    def __init__(self) -> None:
        self.slices: list[tuple[float, float, str, dict]] = []
        self._open: tuple[float, str, dict] | None = None

    def track(self, name, parent=None, *, rank=0):
        return 7

    def series(self, track, marks, about):
        for at, what in zip(marks[::2], marks[1::2], strict=True):
            if self._open is not None:
                began, name, args = self._open
                self.slices.append((began, at, name, args))
            self._open = None
            if what is not None:
                name, _, args = about(what)
                self._open = (at, name, dict(args))


@pytest.fixture
def lane():
    clock, recorder, meter = Time(), Noted(), Meter()
    return Lane("play", 0, meter, clock, recorder), clock, recorder, meter  # type: ignore[arg-type]


def test_every_second_of_a_worker_is_in_one_state(lane):
    lane, clock, recorder, meter = lane
    for seconds, step in [
        (1.0, lambda: lane.work(Item(0, (0,), 0))),
        (2.0, lambda: lane.enter("output", "play->train")),
        (4.0, lambda: lane.enter("pool", "engine")),
        (8.0, lambda: lane.work(Item(1, (1,), 1))),
        (16.0, lane.close),
    ]:
        clock.now += seconds
        step()
    assert meter.seconds == {"input": 1.0, "ticket": 0.0, "pool": 8.0, "work": 2.0 + 16.0, "output": 4.0}
    assert sum(meter.seconds.values()) == clock.now
    assert [(began, end, name) for began, end, name, _ in recorder.slices] == [
        (0, 1, "wait for input"), (1, 3, "play"), (3, 7, "wait for room"), (7, 15, "wait for pool"), (15, 31, "play"),
    ]  # fmt: skip


def test_entering_the_state_it_is_in_changes_the_detail_alone(lane):
    lane, clock, recorder, _ = lane
    lane.enter("output", "a")
    clock.now = 1.0
    lane.enter("output", "b")
    assert lane.detail == "b"
    assert lane.since == 0.0
    lane.close()
    assert [shown[:3] for shown in recorder.slices if shown[1] > shown[0]] == [(0.0, 1.0, "wait for room")]


def test_closing_twice_counts_once(lane):
    lane, clock, _, meter = lane
    clock.now = 3.0
    lane.close()
    clock.now = 9.0
    lane.close()
    assert sum(meter.seconds.values()) == 3.0


def test_quick_items_share_a_slice_and_a_slow_one_has_its_own(lane):
    """The arithmetic of a burst: 3 quick, a slow one, 2 quick."""
    lane, clock, recorder, meter = lane
    clock.now = 1.0
    stretch = lane.stretch(clock.now, (0,))
    assert stretch is not None
    stretch.slow((3,), 1.1, 1.6, 3, (4,))
    clock.now = 1.7
    lane.end_stretch(stretch.end(clock.now, 2))
    lane.enter("input", "edge")
    clock.now = 2.0
    lane.close()
    shown = [(began, end, args.get("items", 1), args["item"]) for began, end, name, args in recorder.slices if name == "play"]
    assert shown == [(1.0, 1.1, 3, "0"), (1.1, 1.6, 1, "3"), (1.6, 1.7, 2, "4")]
    assert meter.seconds["work"] == pytest.approx(0.7)
    assert sum(meter.seconds.values()) == pytest.approx(2.0)


def test_a_stretch_of_slow_items_only_has_a_slice_for_each():
    stretch = Stretch(0.0, (0,))
    stretch.slow((0,), 0.0, 1.0, 0, (1,))
    stretch.slow((1,), 1.0, 2.0, 0, ())
    assert stretch.end(2.0, 0) == [0.0, ((0,), 1), 1.0, ((1,), 1), 2.0, None]


def test_what_is_told_of_an_attempt_names_what_differs_from_the_usual(lane):
    lane, clock, recorder, _ = lane
    clock.now = 1.0
    lane.work(Item(0, (5,), 5))
    clock.now = 2.0
    lane.work(Item(0, (5, 1), 5, member=1, retry=2, seen=3))
    clock.now = 3.0
    lane.close()
    first, second = (args for _, _, name, args in recorder.slices if name == "play")
    assert first == {"item": "5", "birth": 5}
    assert second == {"item": "5.1", "birth": 5, "member": 1, "retry": 2, "version": 3}


def test_arrows_of_two_runs_and_of_two_items_differ():
    numbers = {flow_id(run, path) for run in range(3) for path in [(0,), (1,), (0, 0), (0, 1), (1, 0)]}
    assert len(numbers) == 15
    assert all(0 <= number < 2**64 for number in numbers)
