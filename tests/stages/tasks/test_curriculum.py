import asyncio
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flow import Collect, Context, Failed, Filtered, Freshness, Gathered, Graph, Inline, Items, Run, Threads
from flow.saving import Commits, Saving
from flow.testing import run_virtual, simulate
from flow.testing._threads import PlayedExecutor
from stages.arrays import ARRAYS
from stages.records import Episode, Group, Status, Task
from stages.tasks.curriculum import Curriculum, CurriculumConfig, shares_of
from stages.tasks.generated import Generated
from stages.tasks.observed import Observed
from stages.tasks.source import Tasks

NOTHING = np.zeros(0, np.float32)
INLINE = Inline()


def curriculum(names="abc", **settings) -> Curriculum:
    buckets = {name: Generated(lambda seed, index: Task(f"{seed}-{index}", "?"), seed) for seed, name in enumerate(names)}
    return Curriculum(buckets, CurriculumConfig(**settings))


def episode(task: Task, birth: int, member: int, reward: float | None) -> Episode:
    status = Status.TIMED_OUT if reward is None else Status.FINISHED
    return Episode(task, birth, member, 0, NOTHING, NOTHING, NOTHING, NOTHING, (), (), status, reward=reward)


def group(birth: int, difficulty: str | None, *rewards: float | None) -> Group:
    task = Task(str(birth), "?", difficulty=difficulty)
    return Group(birth, tuple(episode(task, birth, member, reward) for member, reward in enumerate(rewards)))


def draws(source: Curriculum, number: int) -> Counter:
    return Counter(source.draw().difficulty for _ in range(number))


def test_shares_follow_the_variance_of_success_above_a_floor():
    """By hand: p (1 - p) is 0.25, 0.09 and 0; of the 0.7 that is left over the floors, 0.25 / 0.34 goes to the first."""
    parts = shares_of([0.5, 0.9, 1.0], [False] * 3, 0.1)
    expected = [0.1 + 0.7 * 0.25 / 0.34, 0.1 + 0.7 * 0.09 / 0.34, 0.1]
    assert [part / 2**20 for part in parts] == pytest.approx(expected, abs=1e-6)
    assert [part / 2**20 for part in shares_of([1.0, 0.0], [False] * 2, 0.1)] == pytest.approx([0.5, 0.5])
    assert shares_of([1.0, 0.5], [True, False], 0.1) == [0, 2**20]


def test_a_bucket_of_which_nothing_is_known_is_drawn_as_if_it_succeeded_half_of_the_time():
    assert draws(curriculum(min_share=0), 300) == {"a": 100, "b": 100, "c": 100}


def test_draws_are_the_shares_that_success_gives():
    source = curriculum(min_share=0.1, ahead=0)
    for birth, (name, rewards) in enumerate([("a", (1, 0, 1, 0)), ("b", (1,) * 9 + (0,)), ("c", (1, 1, 1, 1))]):
        source.observe(group(birth, name, *rewards))
    source.step(1)
    draws(source, 3)
    counted = draws(source, 1000)
    assert source.success == pytest.approx({"a": 0.5, "b": 0.9, "c": 1.0})
    for name, share in source.shares.items():
        assert abs(counted[name] - 1000 * share) < 3
    assert counted["c"] == pytest.approx(100, abs=3)


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 4)), max_size=60))
@settings(max_examples=15, deadline=None)
def test_no_bucket_starves_whatever_is_observed(observed):
    """Each is drawn at least once in any k / min_share draws, however its share moves."""
    source, longest = curriculum("abcd", min_share=0.1, window=3, ahead=0), 4 / 0.1
    latest = dict.fromkeys("abcd", 0)
    for number in range(1, 200):
        if observed:
            name, successes = observed[number % len(observed)]
            source.observe(group(number, name, *(float(member < successes) for member in range(4))))
            source.step(number)
        drawn = source.draw().difficulty
        assert number - min(latest.values()) <= longest
        latest[drawn] = number


def test_an_estimate_is_a_mean_and_then_a_moving_one():
    """Of a window of 2: the mean of the first two, then half of what was and half of what is new."""
    source = curriculum("a", min_share=0, window=2, ahead=0)
    expected = [1.0, 0.5, 0.75, 0.875]
    for birth, reward in enumerate((1.0, 0.0, 1.0, 1.0)):
        source.observe(group(birth, "a", reward))
        source.step(birth + 1)
        source.draw()
        source.draw()
        assert source.success["a"] == expected[birth]


def test_members_that_failed_say_nothing_and_a_group_of_them_neither():
    source = curriculum("a", min_share=0, ahead=0)
    source.observe(group(0, "a", None, 1.0, 0.0, None))
    source.observe(group(1, "a", None, None))
    source.observe(group(2, "unknown", 1.0))
    source.observe(group(3, None, 1.0))
    assert [one.success for one in source.state().seen] == [0.5]


def test_what_is_told_twice_counts_once_and_a_version_too():
    """An attempt may be repeated after a cancel, and a resumed run loads the version it had."""
    source = curriculum("a", min_share=0, ahead=5)
    source.observe(group(0, "a", 1.0))
    source.observe(group(0, "a", 1.0))
    source.step(1)
    source.observe(group(1, "a", 0.0))
    source.step(1)
    assert [(due, len(observed)) for due, observed in source.state().waiting] == [(6, 1)]
    assert len(source.state().seen) == 1


def test_a_bucket_that_ends_leaves_its_share_to_the_others():
    buckets = {
        "few": Tasks([Task(str(i), "?") for i in range(3)], 0, epochs=1),
        "many": Generated(lambda s, i: Task(str(i), "?"), 0),
    }
    source = Curriculum(buckets)
    assert draws(source, 50) == {"few": 3, "many": 47}
    assert source.shares == {"few": 0.0, "many": 1.0}


def test_floors_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"got 3 of min_share=0\.4, in Curriculum; lower min_share or join buckets"):
        curriculum(min_share=0.4)
    with pytest.raises(ValueError, match=r"expected the sources a, b, c, whose .*got a, b, in Curriculum\.restore"):
        curriculum("ab").restore(curriculum().state())


class Steps:
    """Collects, and keeps what each step held."""

    def __init__(self) -> None:
        self.births: list[list[int]] = []
        self.added: dict[int, Group] = {}

    async def add(self, group: Group, context: Context) -> None:
        self.added[group.birth] = group
        await asyncio.sleep(0.3)

    def finish(self, context: Context) -> int:
        self.births.append(sorted(self.added))
        self.added.clear()
        return len(self.births)

    def state(self) -> list[list[int]]:
        return self.births

    def restore(self, state: list[list[int]]) -> None:
        self.births = state


def graph_of(
    source: Curriculum, opened: dict[int, str | None], seed: int, max_lag: int = 0, placement: Inline | Threads = INLINE
) -> Graph:
    """Takes note of the groups it opens, each with its bucket. Success follows from birth and weights."""
    skill = {"a": 5, "b": 3, "c": 0}

    async def play(task: Task, context: Context) -> Episode | Failed[Episode]:
        opened[context.birth] = task.difficulty
        await asyncio.sleep(0.1 + hash((seed, context.birth, context.member)) % 50)
        able = (context.birth * 7 + context.member * 3 + (context.version or 0)) % 6 < skill[task.difficulty]
        played = episode(task, context.birth, context.member, float(able))
        return Failed(played, "timed_out") if context.birth % 9 == 8 and context.member == 0 else played

    def scored(gathered: Gathered[Episode], context: Context) -> Group:
        return Group(gathered.birth, gathered.members)

    async def filtered(group: Group, context: Context) -> Group | Filtered:
        await asyncio.sleep(0.1)
        return Filtered("no_signal") if len({e.reward for e in group.episodes}) == 1 else group

    async def load(version: int, of: int) -> None:
        await asyncio.sleep(hash((seed, version)) % 3)

    graph = Graph("curriculum")
    weights = graph.latest("weights", int, load=source.counted_before(load))
    prompts = graph.source("prompts", source, placement=placement)
    members = graph.repeat("members", prompts, n=3)
    episodes = graph.stage("episodes", play, workers=12, reads=weights, budget=None)
    groups = graph.group("groups", episodes, missing="drop", budget=None)
    rewards = graph.stage("rewards", scored)
    observed = graph.stage("observed", Observed(source))
    kept = graph.stage("kept", filtered, workers=3, budget=None)
    sink = graph.sink("trainer", Steps(), collect=Collect(4, steps=12))
    graph.edge(prompts, members, capacity=Items(4))
    members >> episodes >> groups >> rewards >> observed >> kept >> sink
    graph.feedback(sink, weights, initial=0, freshness=Freshness(max_lag))
    return graph


def trained(seed: int, ahead: int, max_lag: int = 0) -> tuple[list[tuple[int, str | None]], Curriculum]:
    """Groups opened by a run in virtual time, in birth order, each with its bucket."""
    source, opened = curriculum(min_share=0.1, window=6, ahead=ahead), dict[int, str | None]()
    simulate(graph_of(source, opened, seed, max_lag), seed, late=0.1, slow=0.05)
    return sorted(opened.items()), source


def test_what_is_drawn_does_not_depend_on_when_anything_came():
    """With max_lag=0, over other schedules and durations, with groups filtered and dropped: the same buckets in one order."""
    runs = [trained(seed, ahead=4) for seed in range(6)]
    births = min(len(opened) for opened, _ in runs)
    assert births > 60
    assert len({tuple(opened[:births]) for opened, _ in runs}) == 1
    assert {source.num_late for _, source in runs} == {0}
    counted = Counter(bucket for _, bucket in runs[0][0][20:])
    assert counted["b"] > 2 * counted["c"]  # half of b succeeds, nothing of c


@pytest.mark.parametrize("order", ["source first", "stage first"])
def test_what_was_observed_after_the_latest_draw_is_told_again(order: str):
    """S92: a source on a thread tells its state of its latest draw; the stage that observes tells the rest."""
    whole = curriculum(window=4, ahead=1)
    for number in range(30):
        task = whole.draw()
        whole.observe(group(number, task.difficulty, float(task.difficulty == "a"), float(number % 2)))
        if number % 3 == 2:
            whole.step(number // 3 + 1)
    then = whole.state()
    for number in range(30, 36):
        whole.observe(group(number, "b", 1.0, 0.0))
    whole.step(11)
    whole.observe(group(36, "b", 1.0, 1.0))
    observing = Observed(whole).state()
    lacking, again = curriculum(window=4, ahead=1), curriculum(window=4, ahead=1)
    lacking.restore(then)
    restores = [lambda: again.restore(then), lambda: Observed(again).restore(observing)]
    for restore in restores if order == "source first" else reversed(restores):
        restore()
    assert again.state() == whole.state()
    after = [source.draw().difficulty for source in (whole, again) for _ in range(40)]
    assert after[:40] == after[40:]
    assert [lacking.draw().difficulty for _ in range(40)] != after[:40]


@pytest.mark.slow
@pytest.mark.parametrize("placement", [Inline(), Threads()], ids=["on the loop", "on a thread"])
def test_a_run_that_is_cut_off_draws_from_the_buckets_that_it_would_have_drawn_from(
    tmp_path: Path, placement: Inline | Threads
):
    """S92: what was observed since the latest draw is known after a resume too, where the source tells its state of then."""
    made = 5 if placement == Threads() else 4
    whole, opened, chance = dict(trained(0, ahead=made)[0]), dict[int, str | None](), random.Random(0)

    async def piece(stop_after_s: float | None) -> str:
        source = curriculum(min_share=0.1, window=6, ahead=made)
        with Commits(tmp_path, hooks=ARRAYS) as commits:
            found: dict[int, str | None] = {}
            run = Run(
                graph_of(source, found, 1, placement=placement).build(quiet=True),
                saving=Saving(commits, resume=commits.latest()),
            )
            run.threads = PlayedExecutor
            if stop_after_s is not None:
                asyncio.get_running_loop().call_later(stop_after_s, run.suspend)
            status = str((await run.finish()).status)
        assert all(opened.setdefault(birth, bucket) == bucket for birth, bucket in found.items())
        return status

    pieces = 0
    while run_virtual(piece(40 + 150 * chance.random()), seed=pieces) != "completed":
        pieces += 1
    assert pieces > 5
    births = min(len(whole), len(opened))
    assert births > 60
    assert [opened[birth] for birth in range(births)] == [whole[birth] for birth in range(births)]


def test_observations_that_come_too_late_to_be_exact_are_counted():
    """The edge holds four tasks, and one may be ahead."""
    assert trained(0, ahead=0)[1].num_late > 0
