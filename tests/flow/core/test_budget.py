"""What a node may spend: a window of outcomes, and a row of outcomes that gave nothing."""

import random

import pytest

from flow import Drop, Emit, Fail, Retry
from flow._core.budget import Spending
from flow._spec import NodeSpec


def spending(kind="stage", **settings) -> Spending:
    return Spending(NodeSpec("node", kind, None, int, int, **settings))


@pytest.mark.parametrize("seed", range(20))
def test_the_limit_is_passed_when_more_than_most_of_the_last_failed(seed):
    """S2: against a list of all outcomes, counted again each time."""
    rnd = random.Random(seed)
    most, of = rnd.randint(0, 5), rnd.randint(1, 12)
    budget, outcomes = spending(budget=(most, of)), []
    for _ in range(200):
        outcome = rnd.choice(["kept", "kept", "filtered", "failed", "marked"])
        outcomes.append(outcome in ("failed", "marked"))
        budget.kept() if outcome == "kept" else budget.record(outcome, "because")
        assert (budget.exceeded() is not None) == (sum(outcomes[-of:]) > most)


@pytest.mark.parametrize("policy", [Drop(2, 5), Emit(lambda value, failure, context: 0, 2, 5), Retry(1, then=Drop(2, 5))])
def test_drop_and_emit_bring_their_own_limit(policy):
    budget = spending(on_error=policy, budget=(90, 100))
    for _ in range(3):
        assert budget.exceeded() is None
        budget.record("failed", "refused")
    assert "failed 3 of its last 3 items; expected at most 2 of 5. The last reason was: refused." in str(budget.exceeded())


@pytest.mark.parametrize("policy", [Fail(), Retry(3)])
def test_other_policies_leave_the_limit_of_the_node(policy):
    budget = spending(on_error=policy, budget=(0, 1))
    budget.record("marked", "refused")
    assert "raise budget=(0, 1); None for no limit" in str(budget.exceeded())


def test_a_row_without_a_result_counts_only_where_tickets_come_back():
    """A source that ends ends the row; only tickets make it endless."""
    for holds_tickets in (False, True):
        budget = spending(budget=(3, 4))
        budget.holds_tickets = holds_tickets
        for _ in range(4):
            assert budget.exceeded() is None
            budget.record("filtered", "dull")
        assert (budget.exceeded() is not None) == holds_tickets


def test_failures_and_filters_together_make_a_row():
    """Neither half of it would pass a limit of its own."""
    budget = spending(budget=(2, 4))
    budget.holds_tickets = True
    for outcome in ("failed", "filtered", "failed", "filtered"):
        assert budget.exceeded() is None
        budget.record(outcome, outcome)
    assert "handed on none of its last 4 items; expected at least 1 of 4" in str(budget.exceeded())
    budget.record("marked", "goes on, though it failed")
    assert budget.exceeded() is None
