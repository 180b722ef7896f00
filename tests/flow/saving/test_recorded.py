"""What a journal says of the steps of a run that was killed and went on, once or more often."""

from pathlib import Path

import pytest

from flow.saving import Begun, Cut, Digest, Journal, Made, RecordedSteps, Step


def made(birth: int, value: str, *, node: str = "score", graph: str = "line", outcome: str = "plain") -> Made:
    return Made(
        graph, node, (birth,), 0, birth, None, 0, None, None, 0, (None, None), outcome, "", "", (value.encode(),)
    )  # fmt: skip


def step(number: int, *births: int, version: int | None = 0, graph: str = "line", sink: str = "sink") -> Step:
    return Step(graph, sink, number, tuple(((birth,), birth, version) for birth in births))


def recorded(folder: Path, *records: object) -> RecordedSteps:
    with Journal(folder, record=True) as journal:
        for number, record in enumerate(records, start=1):
            if isinstance(record, Cut):
                journal.cut(number)
            else:
                journal.append(record)
    return RecordedSteps(folder, "line", "score", "sink")


CUT = Cut(0, 0, {})


def trained(found: RecordedSteps) -> list[tuple[int, int | None, str]]:
    """(birth, lag, value) of each item, in order."""
    return [(item.birth, item.lag, value.decode()) for item, value in found.values(found.steps)]


def test_items_come_step_by_step_in_the_order_in_which_they_were_taken_with_their_ages(tmp_path):
    found = recorded(
        tmp_path, Begun("line", "score", (1,), 0, 0), made(1, "0.1"), made(0, "0.0"), made(3, "0.3"), step(1, 1, 0), CUT,
        Digest("line", "sink", 1, "abc"), made(2, "0.2"), step(2, 3, 2), step(3, version=None),
    )  # fmt: skip
    assert [(each.number, each.digest) for each in found.steps] == [(1, "abc"), (2, None), (3, None)]
    assert trained(found) == [(1, 0, "0.1"), (0, 0, "0.0"), (3, 1, "0.3"), (2, 1, "0.2")]


def test_an_item_without_a_version_has_no_age(tmp_path):
    assert trained(recorded(tmp_path, made(0, "0.5"), step(1, 0, version=None))) == [(0, None, "0.5")]


def test_what_a_killed_process_trained_after_the_commit_gives_way_to_what_was_trained_again(tmp_path):
    """Group 1 was recalled, 2 made anew, and 3 was never trained again; the first take of step 2 counts no more."""
    before = [made(0, "0.0"), step(1, 0), Digest("line", "sink", 1, "a"), CUT]
    killed = [made(1, "0.1"), made(2, "0.2"), made(3, "0.3"), step(2, 1, 2), Digest("line", "sink", 2, "b"), step(3, 3)]
    again = [made(2, "0.22"), step(2, 2, 1), Digest("line", "sink", 2, "c")]
    found = recorded(tmp_path, *before, *killed, *again)
    assert [(each.number, each.digest) for each in found.steps] == [(1, "a"), (2, "c")]
    assert trained(found) == [(0, 0, "0.0"), (2, 1, "0.22"), (1, 1, "0.1")]


def test_a_run_that_fell_back_to_an_older_commit_counts_from_there(tmp_path):
    found = recorded(
        tmp_path, made(0, "0"), made(1, "1"), made(2, "2"), step(1, 0), step(2, 1), step(3, 2), made(1, "5"), step(2, 1)
    )
    assert trained(found) == [(0, 0, "0"), (1, 1, "5")]


def test_a_digest_of_a_step_that_is_not_the_latest_says_nothing(tmp_path):
    """Its step was noted and it was not, before the kill; what is noted under the number later is of another take."""
    found = recorded(tmp_path, made(0, "0"), made(1, "1"), step(1, 0), step(2, 1), Digest("line", "sink", 1, "late"))
    assert [each.digest for each in found.steps] == [None, None]


def test_other_graphs_nodes_sinks_and_outcomes_are_passed_over(tmp_path):
    found = recorded(
        tmp_path, made(0, "0.5"), made(0, "1", node="other"), made(0, "2", graph="another"), made(0, "3", outcome="failed"),
        step(1, 0), step(7, 0, graph="another"), step(9, 0, sink="beside"), Digest("another", "sink", 1, "z"),
    )  # fmt: skip
    assert trained(found) == [(0, 0, "0.5")]
    assert found.steps[0].digest is None


def test_what_is_not_in_the_journal_is_told_of(tmp_path):
    with pytest.raises(LookupError, match=r"expected what step 1 of line.sink took, in .*, got nothing of score for 4; only"):
        recorded(tmp_path, step(1, 4))


def test_no_journal_has_no_steps(tmp_path):
    assert RecordedSteps(tmp_path / "none", "line", "score", "sink").steps == []
