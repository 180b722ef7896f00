"""The experiment of the planner on its short settings: what holds at any speed."""

import pytest

from graphs.bench.plan import PLAN, PlanConfig, settings_of


@pytest.mark.slow
def test_every_setting_is_predicted_and_run():
    told: list[int] = []
    found = PLAN.run(PLAN.short, lambda done, total, what: told.append(done))
    assert told == list(range(6))
    assert len(found.tables) == 2
    rates, parts = found.tables
    assert [(row["at_once"], row["lag"]) for row in rates.rows] == [(8, 0), (4, 0), (8, 1)]
    for row in rates.rows:
        assert row["off"] == pytest.approx(float(row["paper"] or 0) / float(row["real"] or 0) - 1)
    bounds = [claim for claim in found.claims if claim.wanted is not None]
    assert [claim.got for claim in bounds] == [abs(float(row["off"] or 0)) for row in rates.rows]
    assert all(float(row["seconds"] or 0) > 0 for row in parts.rows)


def test_settings_that_were_not_measured_are_predicted():
    for job in PlanConfig().jobs:
        measured, *others = settings_of(job)
        assert others
        assert all(each != measured for each in others)
        assert {each.max_lag for each in others} > {measured.max_lag}
