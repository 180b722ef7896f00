"""Each policy of the barrier, under a real deadline: what it states is what is seen."""

import re

import pytest

from flow import Retry, Shrink
from graphs.bench.grouping.cases import CASES, LATE
from graphs.bench.grouping.experiment import GROUPING


@pytest.mark.soak
def test_every_policy_does_what_it_states_and_counts_it():
    found = GROUPING.run(GROUPING.short, lambda done, total, what: None)
    assert [claim for claim in found.claims if claim.holds is not True] == []
    assert len(found.claims) == len(CASES) + 2 * len(LATE)
    stated, seen = found.tables[0].rows[::2], found.tables[0].rows[1::2]
    assert [{**row, "which": "seen"} for row in stated] == [{k: row[k] for k in row if k != "seconds"} for row in seen]


def test_every_kind_of_policy_is_tried_in_each_of_its_ways():
    policies = {str(case.missing) for case in CASES if not isinstance(case.missing, Retry | Shrink)}
    assert policies == {"drop"}
    assert {case.missing.min_members for case in CASES if isinstance(case.missing, Shrink)} == {0, 2, 3, 4}
    retries = {(case.missing.then, case.attempts <= case.missing.times) for case in CASES if isinstance(case.missing, Retry)}
    assert retries == {("drop", True), ("drop", False), ("shrink", True), ("shrink", False)}
    assert {case.late for case in LATE} == {"wait", "drop"}


def test_outcomes_that_differ_in_a_count_read_differently():
    texts = [str(case.stated) for case in CASES]
    assert len(set(texts)) == 9  # the bounds that three members meet state the same, and so do the retries that help
    assert all(re.fullmatch(r"trained (\d:\d ?)+; dropped .*; lost .*; .* balanced", text) for text in texts)
