"""The experiments on their short settings: what holds at any speed, and no figure of the clock."""

from typing import Any

import pytest

from graphs.bench.experiment import Experiment, Findings
from graphs.bench.failing import FAILING
from graphs.bench.idle import IDLE
from graphs.bench.pressure import PRESSURE, PressureConfig, slowed_world
from graphs.bench.scripted import WorldConfig, settings_of
from graphs.bench.stragglers import STRAGGLERS, StragglersConfig, groups_per_step
from graphs.bench.suite import EXPERIMENTS

MINE = (STRAGGLERS, PRESSURE, IDLE, FAILING)


def short(experiment: Experiment) -> tuple[Findings, list[tuple[int, int, str]]]:
    told: list[tuple[int, int, str]] = []
    found = experiment.run(experiment.short, lambda done, total, what: told.append((done, total, what)))
    return found, told


def claims(found: Findings) -> dict[str, Any]:
    return {claim.what: (claim.got, claim.wanted, claim.holds) for claim in found.claims}


def sound(found: Findings, told: list[tuple[int, int, str]]) -> None:
    """What every experiment owes whoever shows it."""
    assert found.answer
    for table in found.tables:
        assert table.rows
        assert all(set(row) == {column.name for column in table.columns} for row in table.rows)
    assert all(not plot.empty for plot in found.plots)
    assert [done for done, _, _ in told] == list(range(told[0][1]))
    assert {total for _, total, _ in told} == {len(told)}


def no_run_beats_its_model(found: Findings) -> None:
    """On the baseline both take everything in one order, so the model, which loses nothing, is never behind. With a lag the
    order may differ, and one that is better here and there is no fault."""
    for table in found.tables:
        for row in table.rows:
            sync = row.get("sync_ratio", row.get("ratio") if row.get("schedule") == "grpo_sync" else None)
            assert sync is None or 0 < sync <= 1.01
            assert row.get("ratio") is None or row["ratio"] > 0


def test_all_four_are_in_the_suite() -> None:
    assert {experiment.name: EXPERIMENTS.get(experiment.name) for experiment in MINE} == {e.name: e for e in MINE}


@pytest.mark.slow
def test_stragglers_measures_both_policies_on_both_schedules() -> None:
    found, told = short(STRAGGLERS)
    sound(found, told)
    assert [table.title.partition(":")[0] for table in found.tables] == ["policy by script", "real engine and trainer"]
    config = STRAGGLERS.short
    assert isinstance(config, StragglersConfig)
    for table in found.tables:
        assert [(row["at_once"], row["groups"]) for row in table.rows] == list(
            zip(config.concurrency, config.groups, strict=True)
        )
    no_run_beats_its_model(found)
    for policy, pairs in found.detail.items():
        for pair in pairs:
            assert sorted(pair["ours"]["trained"]) == sorted(pair["grpo_sync"]["trained"]), policy
    scripted, real = found.detail["policy by script"], found.detail["real engine and trainer"]
    assert [sorted(p["ours"]["trained"]) for p in scripted] == [sorted(p["ours"]["trained"]) for p in real]


@pytest.mark.slow
def test_pressure_keeps_every_edge_within_its_capacity_and_tells_who_was_slowed() -> None:
    found, told = short(PRESSURE)
    sound_without_plots = Findings(found.answer, found.claims, found.tables)
    sound(sound_without_plots, told)
    assert claims(found)["edges that ever held more than their declared capacity, of all runs"] == (0, 0, True)
    edges = next(table for table in found.tables if "each edge" in table.title)
    assert {row["edge"] for row in edges.rows} >= {"members->episodes", "groups->rewards", "batches->trainer"}
    assert all(0 < row[who] <= row["capacity"] for row in edges.rows for who in ("nobody", "trainer", "environment", "judge"))
    no_run_beats_its_model(found)
    assert [plot.title for plot in found.plots][-1] == "Oldest open group"


def test_each_part_is_slowed_alone() -> None:
    config = PressureConfig()
    fields = {"trainer": {"group_s", "step_s"}, "environment": {"delays"}, "judge": {"judge_s"}, "nobody": set()}
    for who, wanted in fields.items():
        slowed = slowed_world(config, who)
        changed = {name for name in WorldConfig.model_fields if getattr(slowed, name) != getattr(config.world, name)}
        assert changed == wanted
    assert slowed_world(config, "environment").delays.mean_s == pytest.approx(8 * config.world.delays.mean_s)


@pytest.mark.slow
def test_idle_tells_three_schedules_apart() -> None:
    found, told = short(IDLE)
    sound(found, told)
    assert [row["schedule"] for row in found.tables[0].rows] == ["max_lag=1", "max_lag=0", "grpo_sync"]
    assert all(0 < row["idle"] < 1 for row in found.tables[0].rows)
    no_run_beats_its_model(found)


def test_the_policy_of_idle_suffices() -> None:
    """The slowest episode there is takes less than a step of the trainer, and both steps under way have their places."""
    config = IDLE.config()
    world = config.world
    assert 2 * world.decode_s + max(world.delays.seconds) < config.groups_per_step * world.group_s + world.step_s
    assert config.max_concurrency == 2 * config.groups_per_step * settings_of(world).group_size


@pytest.mark.slow
def test_failing_changes_nothing_but_the_time() -> None:
    found, told = short(FAILING)
    sound(found, told)
    told_of = claims(found)
    for what in (
        "schedules in which the same tasks were trained",
        "schedules in which every group has its four members",
        "schedules in which failures came, each was tried again, and nothing lost",
        "of those without lag, where tasks were trained in the same order",
        "of the same, where every step has the same loss",
    ):
        assert told_of[what][2] is True, what
    failed = [row["failed"] for row in found.tables[0].rows]
    assert failed[0::2] == [0, 0, 0]
    assert min(failed[1::2]) > 0
    assert len(set(failed[1::2])) == 1  # the same episodes, whatever the schedule


@pytest.mark.parametrize(("at_once", "groups"), [(1, 1), (3, 1), (4, 1), (16, 4), (64, 16)])
def test_a_step_fills_the_episodes_at_once(at_once: int, groups: int) -> None:
    assert groups_per_step(at_once) == groups


def test_groups_that_are_no_whole_steps_are_refused() -> None:
    with pytest.raises(ValueError, match="expected a number of groups for each concurrency, whole steps"):
        StragglersConfig(concurrency=(16,), groups=(6,))
