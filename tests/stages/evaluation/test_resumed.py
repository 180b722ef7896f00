"""Evaluations through kills and suspensions, in virtual time: the same rows, the same tokens, nobody counted twice."""

import asyncio
import math
import random
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from flow import Run
from flow.testing import run_virtual

SLOW = {f"t{number}": 3.0 for number in range(6)}
"""Evaluations of 12 s, while a step of training takes some 3."""

pytestmark = pytest.mark.slow  # Weights under evaluation go through the disk.


def told(world: Any) -> list[dict[str, Any]]:
    """Rows without times."""
    return [{name: value for name, value in row.items() if not name.endswith("_s")} for row in world.rows]


def resumed(make_world: Any, folder: Path, seed: int, **settings: Any) -> tuple[Any, int]:
    """A run that is cut off again and again, and how often an evaluation was under way then."""
    chance, inside = random.Random(seed), 0
    for number in range(60):
        world = make_world(**settings)

        def stop(run: Run, world: Any = world) -> None:
            cut = run.suspend if chance.random() < 0.5 else partial(run.abort, world.killed)
            asyncio.get_running_loop().call_later(15 * chance.random(), cut)

        ended = run_virtual(world.go_on(folder, stop), seed=seed + 100 * number)
        inside += world.pinned.running is not None
        if ended == "completed":
            return world, inside
    raise AssertionError("60 pieces, and no end")


@pytest.mark.parametrize(
    ("seed", "settings"),
    [
        (0, {"max_lag": 0}),
        (1, {"max_lag": 0, "told_s": 1.0, "first": False}),
        (2, {"max_lag": 0, "every": 1, "fails": {"t3"}}),
    ],
)
def test_a_run_that_is_cut_off_again_and_again_evaluates_as_one_that_never_was(make_world, tmp_path, seed, settings):
    """P6: rows, what they are told to, and the tokens that were counted."""
    whole = make_world(steps=4, heldout_s=SLOW, **settings)
    assert run_virtual(whole.go_on(tmp_path / "whole")) == "completed"
    cut, inside = resumed(make_world, tmp_path / "cut", seed, steps=4, heldout_s=SLOW, **settings)
    assert inside > 2, "the cuts meet evaluations"
    assert told(cut) == told(whole)
    assert cut.told == whole.told
    assert sorted(cut.counted) == sorted(whole.counted)
    assert set(Counter((version, task, member) for version, task, member, _ in cut.counted).values()) == {1}


@pytest.mark.parametrize("seed", [3, 4])
def test_with_a_lag_each_evaluation_is_of_one_version_and_counts_everybody_once(make_world, tmp_path, seed):
    """Which versions are due depends on times; what is counted of one does not. The last one always is."""
    cut, inside = resumed(make_world, tmp_path, seed, steps=6, heldout_s=SLOW, max_lag=2)
    assert inside > 1
    versions = [row["version"] for row in cut.rows]
    assert versions == sorted(set(versions))
    assert (versions[0], versions[-1]) == (0, 6)
    assert {row["heldout"] for row in cut.rows} == {0.5}
    assert Counter(version for version, *_ in cut.counted) == dict.fromkeys(versions, 12)
    assert [weights for _, _, weights in cut.told] == versions


def test_the_time_that_an_evaluation_has_had_counts_after_a_resume(make_world, tmp_path):
    """Given up after 20 s in all, of which 8 were before; episodes that were cut then are not asked for again."""
    settings = {"steps": 2, "every": 2, "first": False, "deadline_s": 20, "heldout_s": {"t3": math.inf}}
    first = make_world(**settings)

    def stop(run: Run) -> None:
        asyncio.get_running_loop().call_later(stop_at, run.suspend)

    stop_at = 12.0
    assert run_virtual(first.go_on(tmp_path, stop)) == "suspended"
    had = stop_at - first.at("load 2")
    assert 5 < had < 12
    second = make_world(**settings)
    assert run_virtual(second.go_on(tmp_path)) == "completed"
    [row] = second.rows
    assert second.at("row 2") == pytest.approx(20 - had, abs=0.5)
    assert row["heldout_s"] == pytest.approx(20, abs=0.1)
    assert (row["version"], row["heldout"], row["heldout_failed"], row["heldout_given_up"]) == (2, None, 2, 1)
    assert "given up, 2 episodes short" in row["warning"]


def test_an_evaluation_without_its_weights_is_refused(make_world, tmp_path):
    world = make_world()

    async def begun() -> Any:
        await world.pinned.swap(world.weights(), 0)
        return world.pinned.state()

    async def restored(state: Any) -> None:
        again = make_world()
        again.pinned.load(tmp_path)
        again.pinned.restore(state)

    state = run_virtual(begun())
    with pytest.raises(ValueError, match="expected the weights of version 0, whose evaluation was under way, got none"):
        run_virtual(restored(state))
