"""Random graphs that are killed anywhere and go on from the disk, compared with an interpreter that knows of neither."""

import multiprocessing
import os
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

import pytest
from killed_graphs import POINTS, die_often, drawn_to_be_killed, faults_after, lives_of, ways_to_die


@pytest.mark.slow
@pytest.mark.parametrize("block", range(3))
def test_whatever_is_killed_loses_nothing_and_does_nothing_twice(ram, block):
    """P2, P3, P6, C1, C4, F3, G1: any kind of node in the moment; at commit points, in restores, at times, several in a row."""
    died, recalled = Counter(), 0
    for seed in range(block * 4, block * 4 + 4):
        drawn, every = drawn_to_be_killed(seed, training=seed % 2 == 0), 1 + seed % 2
        for place, kills in enumerate(ways_to_die(drawn, ram / f"{seed}", seed, every, most=2)):
            lives, ends = lives_of(drawn, ram / f"{seed}-{place}", kills, seed, every)
            assert [*faults_after(drawn, lives, ends)] == [], f"seed {seed}: {kills} of {drawn}"
            died.update(life.points[-1] if life.points else "before any" for life in lives[:-1])
            recalled += sum(node.meter.recalled for node in lives[-1].run.state.nodes.values())
    assert died.total() > 18
    assert recalled > 10, "of what had been finished, and was not made again"


@pytest.mark.soak
def test_thousands_of_deaths_of_random_graphs_lose_nothing():
    """P2, P6: ``HEADRACE_SEEDS`` says how many times ten graphs, ``HEADRACE_FIRST_SEED`` from which on."""
    first, count = int(os.environ.get("HEADRACE_FIRST_SEED", "0")), int(os.environ.get("HEADRACE_SEEDS", "4000")) // 10
    died, failed = Counter(), {}
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        blocks = [range(start, min(start + 5, first + count)) for start in range(first, first + count, 5)]
        for part in pool.map(die_often, blocks):
            died.update(part[0])
            failed.update(part[1])
    print(
        f"{died.total()} deaths of {count} graphs: {', '.join(f'{number} at {place}' for place, number in died.most_common())}"
    )
    assert failed == {}
    assert died.keys() >= set(POINTS)
