"""A logger beside a run: on its own thread, bounded, and of no harm."""

import threading
from collections.abc import Mapping
from typing import Any

from graphs.loggers.aside import Aside


class Kept:
    """A logger that keeps what it is told, and fails at what it is asked to."""

    def __init__(self) -> None:
        self.rows: list[Mapping[str, Any]] = []
        self.threads: set[int] = set()

    def row(self, row: Mapping[str, Any]) -> None:
        self.threads.add(threading.get_ident())
        if row.get("fail"):
            raise OSError("no room")
        self.rows.append(row)

    def episode(self, episode: Mapping[str, Any]) -> None:
        self.rows.append(episode)

    def close(self, summary: Mapping[str, Any]) -> None:
        self.rows.append(summary)


def test_it_is_told_everything_in_order_on_another_thread() -> None:
    logger, failures = Kept(), list[str]()
    aside = Aside("kept", lambda: logger, failures.append)
    for step in range(100):
        aside.row({"step": step})
    aside.episode({"task": "a"})
    assert aside.close({"status": "completed"})
    assert logger.rows == [*({"step": step} for step in range(100)), {"task": "a"}, {"status": "completed"}]
    assert logger.threads.isdisjoint({threading.get_ident()})
    assert (failures, aside.dropped) == ([], 0)


def test_one_that_fails_is_told_of_once_and_goes_on_with_what_it_can() -> None:
    logger, failures = Kept(), list[str]()
    aside = Aside("kept", lambda: logger, failures.append)
    for fail in (True, False, True):
        aside.row({"fail": fail})
    assert aside.close({})
    assert failures == ["the logger kept failed: OSError: no room (said once)"]
    assert logger.rows == [{"fail": False}, {}]


def test_one_that_cannot_be_opened_is_told_of_once_and_takes_nothing() -> None:
    def make() -> Kept:
        raise ConnectionError("nobody there")

    failures: list[str] = []
    aside = Aside("kept", make, failures.append)
    aside.row({})
    assert aside.close({})
    assert failures == ["the logger kept failed: ConnectionError: nobody there (said once)"]


def test_one_that_hangs_holds_nothing_up_and_what_it_misses_is_counted() -> None:
    go_on = threading.Event()

    class Hangs(Kept):
        def row(self, row: Mapping[str, Any]) -> None:
            go_on.wait()

    failures: list[str] = []
    aside = Aside("kept", Hangs, failures.append, most=4)
    for step in range(10):
        aside.row({"step": step})
    assert aside.dropped >= 5
    assert not aside.close({}, within_s=0.05)
    go_on.set()
