"""Random graphs that are killed anywhere and go on from the disk, compared with an interpreter that knows of neither."""

from collections import Counter

import pytest
from killed_graphs import drawn_to_be_killed, faults_after, lives_of, ways_to_die


@pytest.mark.slow
@pytest.mark.parametrize("block", range(3))
def test_whatever_is_killed_loses_nothing_and_does_nothing_twice(tmp_path, block):
    """P2, P6, C1, C4, F3, G1: every kind of node in the moment; at commit points, in restores, at times, several in a row."""
    died = Counter()
    for seed in range(block * 4, block * 4 + 4):
        drawn, every = drawn_to_be_killed(seed, training=seed % 2 == 0), 1 + seed % 2
        for place, kills in enumerate(ways_to_die(drawn, tmp_path / f"{seed}", seed, every, most=2)):
            lives, ends = lives_of(drawn, tmp_path / f"{seed}-{place}", kills, seed, every)
            assert [*faults_after(drawn, lives, ends)] == [], f"seed {seed}: {kills} of {drawn}"
            died.update(life.points[-1] if life.points else "before any" for life in lives[:-1])
    assert died.total() > 18
