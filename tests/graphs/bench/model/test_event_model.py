"""Lines of which the answer is known by hand."""

from dataclasses import replace

import pytest

from graphs.bench.model.event_model import Model
from graphs.bench.model.spec import Drawn, Line, Work

BOTTLENECK = Line("bottleneck", 10, 10, (Work("a", 2, 4), Work("b", 1, 2)))
POOL = Line("pool", 10, 10, (Work("a", 9, 9, {"p": 1}), Work("b", 9, 9, {"p": 1})), pools={"p": 2})
LOCK_STEP = Line("lock step", 4, 10, members=(Work("a", 8, 8, reads=True),), size=2, max_lag=0)
ONE_AHEAD = replace(LOCK_STEP, name="one ahead", max_lag=1)
KNOWN = [
    (BOTTLENECK, {"a": 1.0, "b": 2.0}, 1.0 + 100 * 2.0),
    # 100 items that need two seconds of one of two units each; the pipe is as full at the end as room allows.
    (POOL, {"a": 1.0, "b": 1.0}, 100 * 2.0 / 2),
    (LOCK_STEP, {"a": 1.0, "finish": 3.0, "load": 2.0}, 10 * (1.0 + 3.0 + 2.0) - 2.0),
    # Two batches in flight: the sink is the bottleneck after the first, and loads hide behind steps.
    (ONE_AHEAD, {"a": 1.0, "finish": 3.0, "load": 1.0}, 1.0 + 10 * 3.0),
]


class Given:
    """Times by hand: seconds of nodes, and attempts that fail."""

    def __init__(self, seconds: dict[str, float], *failing: tuple[str, tuple[int, ...], int]) -> None:
        self._seconds, self._failing = seconds, failing

    def seconds(self, node: str, path: tuple[int, ...], retry: int = 0) -> float:
        return self._seconds.get(node, 0.0)

    def fails(self, node: str, path: tuple[int, ...], retry: int = 0) -> bool:
        return (node, path, retry) in self._failing


@pytest.mark.parametrize(("line", "means", "seconds"), KNOWN, ids=lambda value: getattr(value, "name", ""))
def test_a_line_takes_what_it_takes_by_hand(line: Line, means: dict[str, float], seconds: float) -> None:
    assert Model(line, Drawn("constant", means)).run().seconds == pytest.approx(seconds, rel=0.02)


def test_no_group_is_opened_that_no_step_needs() -> None:
    """Two workers for the four members of a step: were others opened too, the last step would share the workers with them."""
    line = Line("end", 2, 3, members=(Work("a", 2, 4, reads=True),), size=2, max_lag=1)
    assert Model(line, Given({"a": 1.0})).run().seconds == 6 * 1.0


@pytest.mark.parametrize("retries", [1, 2])
def test_a_failed_member_is_issued_again_as_often_as_is_allowed_then_its_group_is_dropped(retries: int) -> None:
    """Alone at work, each attempt takes its second; after the last one allowed another group is opened in place of it."""
    line = Line("retry", 1, 1, members=(Work("a", 1, 2, reads=True),), size=2, missing="retry", retries=retries, max_lag=0)
    once = Model(line, Given({"a": 1.0}, ("a", (0, 1), 0))).run()
    assert (once.seconds, once.trained, dict(once.dropped)) == (3.0, [(0,)], {})
    always = Model(line, Given({"a": 1.0}, *(("a", (0, 1), retry) for retry in range(retries + 1)))).run()
    assert (always.seconds, always.trained, dict(always.dropped)) == (1.0 + 1.0 * (retries + 1) + 2.0, [(1,)], {"failed": 1})


def test_a_barrier_holds_as_many_whole_groups_as_the_edge_behind_it_would() -> None:
    """Groups of one that take no time, a stage behind them that takes a second: what comes through is that stage's pace."""
    line = Line("full", 1, 6, members=(Work("a", 1, 1),), after=(Work("b", 1, 2),), size=1)
    assert Model(line, Given({"b": 1.0})).run().seconds == 6.0
