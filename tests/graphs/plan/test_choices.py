"""Which settings are tried, which of them is enough, and that what is told can be typed."""

from dataclasses import replace

import pytest

from graphs.plan.choices import choices, enough, row_sizes, told
from graphs.plan.times import TrainerTimes
from graphs.rl_config import RlConfig
from graphs.settings import read_settings


@pytest.fixture
def wanted(settings) -> RlConfig:
    return settings(groups_per_step=2, max_concurrency=4, pools={"desk": 2})


def test_every_choice_differs_and_the_cheapest_that_is_enough_is_taken(handmade, tiny, wanted):
    small = TrainerTimes({(2, 64): 0.6}, 0.005, 0.25, 1.0)
    times = handmade(num_groups=8)
    found = choices(wanted, tiny, replace(times, trainer={**times.trainer, 2: small}))
    assert len({(choice.cost, str(choice.config.pools)) for choice in found}) == len(found)
    assert [choice.cost for choice in found] == sorted(choice.cost for choice in found)
    assert sum(choice.current for choice in found) == 1
    assert {choice.config.max_lag for choice in found} == {0, 1, 2}
    assert {choice.config.trainer.rows_per_microbatch for choice in found} == {2, 4}
    assert {choice.config.pools["desk"] for choice in found} == {2, 4}
    assert all(choice.config.max_concurrency <= 4 * (choice.config.max_lag + 1) for choice in found)
    rates = [choice.groups_per_minute for choice in found]
    target = sorted(rates)[len(rates) // 2]
    chosen = enough(found, target)
    assert chosen is not None
    assert chosen.groups_per_minute >= target
    assert all(choice.groups_per_minute < target for choice in found if choice.cost < chosen.cost)
    assert enough(found, 2 * max(rates)) is None


def test_a_barrier_over_the_batch_has_no_lag(handmade, tiny, wanted):
    found = choices(wanted.model_copy(update={"barrier": "batch"}), tiny, handmade())
    assert {choice.config.max_lag for choice in found} == {0}


def test_what_is_told_can_be_typed(handmade, tiny, wanted):
    for choice in choices(wanted.model_copy(update={"barrier": "batch"}), tiny, handmade()):
        typed = read_settings(RlConfig, [each.replace("--rl.", "--") for each in choice.arguments()], "test")
        assert typed.max_concurrency == choice.config.max_concurrency
        assert typed.max_lag == choice.config.max_lag
        assert typed.trainer.rows_per_microbatch == choice.config.trainer.rows_per_microbatch
        assert typed.pools == choice.config.pools
        assert f"max_lag {choice.config.max_lag}" in told(choice.config)


def test_rows_are_measured_at_half_and_twice_their_number(wanted):
    assert row_sizes(wanted) == [2, 4, 8]
