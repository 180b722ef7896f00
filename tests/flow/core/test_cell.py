"""A versioned cell: what is in force, what is published, what was skipped."""

import pytest

from flow._core.cell import Cell


def test_a_published_value_is_not_in_force_before_it_was_loaded():
    """F1, S5: readers keep the old value and its version while the new one loads."""
    cell = Cell("weights")
    cell.start("w0")
    assert cell.publish("w1") == 1
    assert (cell.value, cell.version, cell.published) == ("w0", 0, 1)
    assert cell.pending() == (1, "w1")
    assert cell.pending() is None
    cell.enforce(1, "w1")
    assert (cell.value, cell.version) == ("w1", 1)


def test_versions_that_were_overtaken_are_skipped_and_counted():
    """S14: three versions while the reader is busy; it takes the newest, and nobody waits for the others."""
    cell = Cell("weights")
    cell.start("w0")
    for number in (1, 2, 3):
        assert cell.publish(f"w{number}") == number
    assert cell.pending() == (3, "w3")
    assert cell.skipped == 2


def test_versions_never_go_back():
    cell = Cell("weights")
    cell.start("w5", version=5)
    with pytest.raises(AssertionError, match="5 after 5"):
        cell.enforce(5, "again")
