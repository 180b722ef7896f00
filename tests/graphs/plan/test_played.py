"""Runs on paper, with times made by hand, against what follows from them."""

from dataclasses import replace

import pytest

from graphs.plan.permits import Hold
from graphs.plan.played import predicted


def test_one_episode_after_the_other_takes_the_sum_of_its_parts(handmade, tiny, settings, episode_s, step_s):
    group_s, end_s = step_s
    found = predicted(settings(), tiny, handmade())
    assert found.ends_s == pytest.approx([2 * episode_s + group_s + end_s])
    assert (found.groups, found.microbatches) == (1, 1.0)
    assert found.trainer_idle == pytest.approx(2 * episode_s / found.ends_s[-1])


def test_a_lag_lets_the_trainer_work_while_episodes_go_on(handmade, tiny, settings, episode_s, step_s):
    """With one group a step: without a lag each step is both after one another, with it the longer of the two."""
    times, trains_s, rolls_s = handmade(num_groups=8), sum(step_s), 2 * episode_s
    apart = predicted(settings(steps=8), tiny, times)
    together = predicted(settings(steps=8, max_lag=1), tiny, times)
    assert apart.ends_s[-1] == pytest.approx(8 * (rolls_s + trains_s))
    assert together.ends_s[-1] == pytest.approx(rolls_s + 8 * trains_s, rel=0.02)
    assert trains_s > rolls_s


def test_more_episodes_at_once_share_the_steps_of_the_engine(handmade, tiny, settings, episode_s, step_s):
    """Two at once say their tokens in the same steps. One comes while the other is read in."""
    found = predicted(settings(max_concurrency=2), tiny, handmade())
    assert episode_s < found.ends_s[-1] - sum(step_s) < 1.2 * episode_s


def test_engine_and_trainer_that_share_a_processor_slow_each_other(handmade, tiny, settings, step_s):
    """A trainer that works without a break leaves an engine half of their one processor: its steps take twice as long."""
    times, wanted = handmade(num_groups=8), settings(steps=8, max_lag=1)
    many, one = (predicted(wanted, tiny, replace(times, processors=each)) for each in (8.0, 1.0))
    engine_s = [each.engine_busy * each.ends_s[-1] for each in (many, one)]
    # The episodes of the first step run alone, those of the other seven beside the trainer.
    assert engine_s[1] == pytest.approx(engine_s[0] * (1 + 2 * 7) / 8, rel=0.1)
    assert one.ends_s[-1] > many.ends_s[-1] + 0.9 * (engine_s[0] * 7 / 8)


def test_a_pool_of_one_unit_has_calls_wait_for_each_other(handmade, tiny, settings):
    held = {(birth, member, 0): [Hold({"desk": 1}, 0.0, 5.0, 5.3)] for birth in range(3) for member in range(4)}
    times = handmade(group_size=4, holds=held)
    wanted = settings(group_size=4, max_concurrency=4)
    one, four = (predicted(wanted.model_copy(update={"pools": {"desk": units}}), tiny, times).ends_s[-1] for units in (1, 4))
    # What was waited for then, 5 s, is not waited for again; what was held is.
    assert one - four == pytest.approx(3 * 0.3, abs=0.1)


def test_a_step_that_is_held_has_its_gradients_once_for_each_epoch(handmade, tiny, settings):
    wanted, times = settings(groups_per_step=2, max_concurrency=4), handmade()
    held = wanted.model_copy(update={"trainer": wanted.trainer.model_copy(update={"num_epochs": 3})})
    streamed, again = (predicted(each, tiny, times) for each in (wanted, held))
    assert (streamed.microbatches, again.microbatches) == (1.0, 3.0)
    assert again.ends_s[-1] - streamed.ends_s[-1] == pytest.approx(2 * 1.0)  # of a second each


def test_rows_that_were_not_measured_are_refused(handmade, tiny, settings):
    wanted = settings()
    wanted = wanted.model_copy(update={"trainer": wanted.trainer.model_copy(update={"rows_per_microbatch": 16})})
    with pytest.raises(LookupError, match="micro-batches of 4 rows, which were measured; got 16"):
        predicted(wanted, tiny, handmade())


def test_the_same_plan_comes_out_the_same(handmade, tiny, settings):
    wanted = settings(steps=3, groups_per_step=2, max_concurrency=3, max_lag=1)
    assert predicted(wanted, tiny, handmade()) == predicted(wanted, tiny, handmade())
