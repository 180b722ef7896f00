"""Random graphs by the ten thousand, disturbed in every way, over all cores. ``make soak`` runs it.

``HEADRACE_SEEDS`` says how many seeds (20,000 by default), ``HEADRACE_FIRST_SEED`` from which on. A seed that failed is
repeated alone with ``soak(range(seed, seed + 1))`` of ``importable/soaked_seeds.py``.
"""

import multiprocessing
import os
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed

import pytest
from soaked_seeds import Soaked, soak

BLOCK = 250
SAY_EVERY_S = 60.0


@pytest.mark.soak
def test_no_seed_of_very_many_finds_anything(capsys):
    """C1 to C9, S1 to S7, F3 to F5, G1 to G5: every item ends once and where the interpreter says, in every promised order."""
    first, count = int(os.environ.get("HEADRACE_FIRST_SEED", "0")), int(os.environ.get("HEADRACE_SEEDS", "20000"))
    blocks = [range(start, min(start + BLOCK, first + count)) for start in range(first, first + count, BLOCK)]
    found, began, said = Soaked(), time.monotonic(), 0.0
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        for each in as_completed([pool.submit(soak, block) for block in blocks]):
            block = each.result()
            found.failed.update(block.failed)
            found.counts.update(block.counts)
            found.seconds += block.seconds
            if block.failed or time.monotonic() - said > SAY_EVERY_S:
                said = time.monotonic()
                with capsys.disabled():
                    print(f"\n{said - began:.0f} s: {_told(found)}", flush=True)
    print(f"{count} seeds in {time.monotonic() - began:.0f} s, {found.seconds:.0f} s of processor time: {_told(found)}")
    assert not found.failed, _repeats(found.failed)
    assert found.counts["runs"] == count
    assert _reasons(found.counts) >= {"ValueError", "KeyError", "drawn", "group closed", "surplus", "stale", "DeadlineExceeded"}


def _told(found: Soaked) -> str:
    counts = ", ".join(f"{count} {name}" for name, count in found.counts.most_common(9))
    return f"{len(found.failed)} seeds failed {sorted(found.failed)[:20]}; {counts}"


def _reasons(counts: Counter[str]) -> set[str]:
    return {reason for reason, count in counts.items() if count}


def _repeats(failed: dict[int, str]) -> str:
    texts = [f"soak(range({seed}, {seed + 1})): {text}" for seed, text in sorted(failed.items())[:5]]
    return "\n".join([f"{len(failed)} seeds failed: {sorted(failed)[:100]}", *texts])
