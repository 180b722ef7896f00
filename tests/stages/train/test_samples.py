"""Episodes that are looked at: which are chosen, and that what is told of their tokens is what the gradient read."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import pytest

from flow import testing
from stages.batches.pack import pack_group
from stages.losses.policy import PolicyLoss
from stages.models.logprobs import target_logprobs
from stages.records import Batch, Episode, Group, Row, Status, Task, Turn
from stages.train.samples import MOST_WAITING, Sampled, Samples

ROW = 12


def episode(random: np.random.Generator, birth: int, member: int, rows: tuple[Row, ...] = (), length: int = 6) -> Episode:
    mask = np.arange(length) % 6 >= 2
    return Episode(
        Task("t", "?"), birth, member, 0, random.integers(0, 11, length).astype(np.int32), mask,
        np.where(mask, -random.uniform(1.5, 3.0, length), np.nan).astype(np.float32), np.where(mask, 0, -1).astype(np.int32),
        (Turn(2, 6, "stop", 0.1, None),), (), Status.FINISHED, reward=1.0, rows=rows,
    )  # fmt: skip


def group(birth: int, signs: Sequence[float], **made: Any) -> Group:
    """A group whose members have these advantages."""
    random = np.random.default_rng(birth)
    episodes = tuple(episode(random, birth, member, **made) for member in range(len(signs)))
    advantages = tuple(np.where(one.mask, sign, 0.0).astype(np.float32) for one, sign in zip(episodes, signs, strict=True))
    return Group(birth, episodes, advantages, live=(True,) * len(signs))


def batch(scored: Group) -> Batch:
    return pack_group(scored, PolicyLoss().needs, ROW)


def taken(wanted: int, groups: Sequence[Group]) -> list[Sampled]:
    """What is chosen of one step that trains these groups."""
    found: list[Sampled] = []
    samples = Samples()
    samples.attach(wanted, found.append)
    for one in groups:
        samples.offer(one)
    for one in groups:
        samples.add(batch(one))
    samples.finish(1)
    return found


def test_the_first_groups_that_train_something_are_chosen():
    groups = [group(0, [0.0, 0.0]), group(1, [1.0, -1.0]), group(2, [1.0, -1.0]), group(3, [1.0, -1.0])]
    assert [one.episode.birth for one in taken(2, groups)] == [1, 2]


def test_every_member_is_chosen_as_often_as_the_others_whatever_the_births_of_a_step_and_the_same_again():
    births = range(0, 64, 8)  # with the first group of each step of eight, a rule of the birth number alone would pick one
    found = [[one.episode.member for birth in births for one in taken(1, [group(birth, [1.0, -1.0, 0.0])])] for _ in range(2)]
    assert found[0] == found[1]
    assert set(found[0]) == {0, 1}, "of those that train something"


def test_groups_without_signal_make_up_the_number_and_have_no_log_probability_of_the_trainer():
    groups = [group(0, [0.0, 0.0]), group(1, [1.0, -1.0])]
    found = taken(5, groups)
    assert [one.episode.birth for one in found] == [1, 0]
    assert all(np.isnan(one.trainer).all() for one in found)


def test_nothing_is_chosen_before_somebody_wants_it():
    assert taken(0, [group(0, [1.0, -1.0])]) == []


def test_what_never_comes_is_not_kept_for_ever():
    samples = Samples()
    found: list[Sampled] = []
    samples.attach(1, found.append)
    for birth in range(3 * MOST_WAITING):
        samples.offer(group(birth, [1.0]))
    samples.add(batch(group(3 * MOST_WAITING, [1.0])))
    samples.finish(1)
    late = group(3 * MOST_WAITING + 1, [1.0])
    samples.offer(late)
    samples.add(batch(late))
    samples.finish(2)
    assert [(one.step, one.episode.birth) for one in found] == [(2, late.birth)]


def test_what_was_on_its_way_in_one_graph_is_forgotten_in_the_next():
    """Groups of another graph are numbered from 0 again."""
    samples = Samples()
    found: list[Sampled] = []
    samples.attach(1, found.append)
    samples.offer(group(0, [1.0]))
    samples.begin()
    samples.add(batch(group(0, [1.0])))
    samples.finish(1)
    assert found == []


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"num_minibatches": 2}], ids=["one update", "two minibatches"])
def test_the_trainer_tells_the_log_probabilities_that_its_gradient_is_of(
    tiny: Callable[..., Any], trainer: Callable[..., Any], settings: dict[str, Any]
):
    """Compared with each row alone, not packed, under the parameters as they were."""
    policy, found, samples = tiny(), [], Samples()
    samples.attach(2, found.append)
    rows = (Row(0, 6), Row(6, 12))
    groups = [group(0, [1.0, -1.0], rows=rows, length=12), group(1, [0.5, -0.5])]
    learner = trainer(policy, samples=samples, **settings)
    learner.open()
    before = {one.birth: alone(policy, one.episodes) for one in groups}
    for one in groups:
        samples.offer(one)
        learner.add(batch(one), testing.context(node="trainer"))
    learner.finish(testing.context(node="trainer"))
    assert [one.episode.birth for one in found] == [0, 1]
    near = []
    for one in found:
        mask = one.episode.mask
        assert np.isfinite(one.trainer[mask]).all()
        assert np.isnan(one.trainer[~mask]).all()
        assert (one.advantages[mask] != 0).all()
        expected = before[one.episode.birth][one.episode.member]
        near.append(bool(np.allclose(one.trainer[mask], expected[mask], atol=1e-5)))
    # Of two minibatches one is trained with the parameters that the other left.
    assert sorted(near) == [not settings, True]


def alone(model: Any, episodes: Sequence[Episode]) -> list[np.ndarray]:
    """Log-probabilities of the tokens of episodes, each row read by itself."""
    found = []
    for one in episodes:
        parts = []
        for row in one.all_rows:
            ids, mask = one.ids[None, row.start : row.stop], one.mask[None, row.start : row.stop]
            places = np.arange(ids.shape[1], dtype=np.int32)[None]
            hidden = model.hidden(ids, places, np.ones_like(ids))
            parts.append(np.asarray(jax.device_get(target_logprobs(hidden, model.head, ids, mask, 1.0)[0]))[0])
        found.append(np.concatenate(parts))
    return found
