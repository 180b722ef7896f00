"""Trainer, engine and reference on one device, on two and on three: the same run. All figures come from one process."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow  # One process that compiles some ten programs and runs six small runs.


@pytest.fixture(scope="module")
def found(on_eight_devices: Callable[[Path], Any]) -> dict[str, Any]:
    return on_eight_devices(Path(__file__).with_name("four_placements.py"))


def test_the_run_is_one_in_which_a_wrong_reference_would_show(found: dict[str, Any]) -> None:
    """Losses of each step differ and hold a distance from a reference that moved; all three models have changed."""
    losses = found["colocated"]["losses"]
    assert len(set(losses)) == 3
    assert len(set(found["colocated"]["digests"])) == 3
    assert found["stale_reference"]["losses"][0] == losses[0]
    assert abs(found["stale_reference"]["losses"][2] - losses[2]) > 1e-4


@pytest.mark.parametrize("name", ["two_way", "three_way", "slow_reference", "slow_engine"])
def test_where_the_models_lie_and_how_long_their_loads_take_changes_no_bit(found: dict[str, Any], name: str) -> None:
    """With max_lag=0: losses of all steps, and policy, critic and reference at the end."""
    for what in ("losses", "tokens", "digests"):
        assert found[name][what] == found["colocated"][what], what


def test_a_reference_whose_rows_are_spread_over_devices_differs_by_rounding_alone(found: dict[str, Any]) -> None:
    """A program of one row a device orders its sums otherwise than one of two rows."""
    for what in ("losses", "norm"):
        assert found["spread"][what] == pytest.approx(found["colocated"][what], abs=1e-6, rel=1e-6), what


def test_each_scores_on_its_own_devices_with_the_programs_it_opened_with(found: dict[str, Any]) -> None:
    assert {name: figures["devices"] for name, figures in found.items()} == {
        "colocated": [0], "slow_reference": [0], "stale_reference": [0], "slow_engine": [0], "two_way": [0], "three_way": [2],
        "spread": [2, 3],
    }  # fmt: skip
    assert found["three_way"]["compilations"] == [2, 2]  # batches of two rows, and of one
    assert found["spread"]["compilations"] == [1, 2]  # of one row to share between two devices there is none
