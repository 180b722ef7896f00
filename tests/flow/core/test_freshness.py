"""Tickets and selection: never more out than there are, never a group too old, never a wait without end."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flow import Freshness
from flow._core.freshness import Admission


def admission(max_lag: int, per_step: int = 2, steps: int | None = None, late: str = "wait") -> Admission:
    return Admission(Freshness(max_lag, late), per_step, steps, lambda birth: None)


def test_tickets_are_a_step_for_each_version_of_lag_and_one_more():
    """F3: (max_lag + 1) x groups a step, conserved."""
    tickets = admission(max_lag=2, per_step=3)
    for birth in range(9):
        assert tickets.may_open
        tickets.opened(birth)
    assert not tickets.may_open
    assert (tickets.capacity, tickets.held) == (9, 9)


def test_a_ticket_comes_back_when_the_weights_are_in_force_and_not_before():
    """S5: with no lag nothing may be made by the old version while the new one loads."""
    tickets, woken = admission(max_lag=0, per_step=1), []
    tickets.listeners.append(lambda: woken.append(tickets.may_open))
    tickets.opened(0)
    tickets.take(0)
    assert not tickets.may_open
    tickets.trained([0])
    assert not tickets.may_open
    tickets.enforce(1)
    assert woken == [True]


def test_a_dropped_group_returns_its_ticket_once():
    tickets = admission(max_lag=0)
    tickets.opened(0)
    tickets.drop(0)
    tickets.drop(0)
    assert (tickets.held, tickets.dropped) == (0, 1)


def test_skipped_versions_return_the_tickets_of_all_steps_up_to_the_newest():
    """S14: nobody waits for the acknowledgement of a version that was skipped."""
    tickets = admission(max_lag=2, per_step=1)
    for birth in range(3):
        tickets.opened(birth)
        tickets.take(birth)
        tickets.trained([birth])
    assert tickets.held == 3
    tickets.enforce(3)
    assert tickets.held == 0


def test_age_is_counted_once_from_dispatch_to_the_step_that_consumes():
    """S18: waiting in a queue ages an item as running does."""
    tickets = admission(max_lag=1, per_step=1)
    for birth in range(4):
        tickets.opened(birth)
        tickets.take(birth)
        tickets.trained([birth])
    assert tickets.lag(1) == 3
    assert tickets.lag(None) is None
    assert tickets.too_old(2)
    assert not tickets.too_old(3)
    assert not tickets.too_old(None)


def test_with_no_lag_groups_are_taken_in_birth_order():
    tickets = admission(max_lag=0)
    for birth in (0, 1):
        tickets.opened(birth)
    assert tickets.choose([(1, 0)]) is None
    assert tickets.choose([(1, 0), (0, 0)]) == 1


def test_a_step_waits_for_the_group_that_would_become_too_old():
    """S16: the slow group is not overtaken until it must be thrown away."""
    running = {0: 0}  # group 0 was dispatched with version 0 and takes its time
    tickets = Admission(Freshness(max_lag=1), 1, None, running.get)
    tickets.opened(0)
    tickets.opened(1)
    tickets.gathered(1, 0)
    assert tickets.choose([(1, 0)]) == 0  # group 0 may still go next, with lag 1
    tickets.take(1)
    tickets.trained([1])
    tickets.enforce(1)
    tickets.opened(2)
    tickets.gathered(2, 1)
    assert tickets.choose([(2, 1)]) is None
    tickets.gathered(0, 0)
    assert tickets.choose([(2, 1), (0, 0)]) == 1


def test_a_run_of_few_steps_opens_no_more_groups_than_it_needs():
    tickets = admission(max_lag=3, per_step=2, steps=2)
    for birth in range(4):
        assert tickets.may_open
        tickets.opened(birth)
    assert not tickets.may_open
    tickets.drop(2)
    assert tickets.may_open  # a replacement is drawn for what was dropped


def test_a_step_given_up_puts_its_groups_back():
    tickets = admission(max_lag=0)
    tickets.opened(0)
    tickets.take(0)
    tickets.give_back(0, 0)
    assert tickets.choose([(0, 0)]) == 0
    assert tickets.held == 1


def feasible_after(tickets: Admission, taken: int) -> bool:
    """The definition, for one candidate: whoever must go by each later step still fits after it."""
    freshness, holding = tickets.freshness, tickets._holding
    margins = {
        birth: max(0, min((0 if version is None else version) + freshness.max_lag - tickets.step, freshness.max_lag))
        for birth, version in holding.items()
        if birth != taken
    }
    places = tickets.per_step - tickets._taken - 1
    return all(
        sum(margin <= later for margin in margins.values()) <= places + later * tickets.per_step
        for later in range(freshness.max_lag + 1)
    )


@pytest.mark.parametrize("seed", range(200))
def test_the_choice_is_the_oldest_of_those_that_leave_room_for_all_others(seed):
    """S16: the count over all candidates at once against the definition, one candidate at a time, in any state."""
    rnd = random.Random(seed)
    max_lag, per_step = rnd.randint(1, 4), rnd.randint(1, 4)
    tickets = Admission(Freshness(max_lag), per_step, None, lambda birth: None)
    tickets.step = rnd.randint(0, 6)
    tickets._taken = rnd.randrange(per_step)
    ready = []
    for birth in rnd.sample(range(99), rnd.randint(1, (max_lag + 1) * per_step)):
        version = rnd.randint(max(0, tickets.step - max_lag), tickets.step)
        tickets.opened(birth)
        tickets.gathered(birth, version)
        if rnd.random() < 0.6:
            ready.append((birth, version))
    allowed = [(version, birth) for birth, version in ready if feasible_after(tickets, birth)]
    chosen = tickets.choose(ready)
    assert (None if chosen is None else ready[chosen][::-1]) == min(allowed, default=None)


def test_a_look_asks_for_each_group_once_however_many_are_ready():
    """256 groups a step with a lag of 4 are 1280 held: a look is linear in them, or the loop would stand still."""
    asked: list[int] = []
    tickets = Admission(Freshness(4), 256, None, lambda birth: asked.append(birth))
    for birth in range(1280):
        tickets.opened(birth)
    for birth in range(0, 1280, 2):
        tickets.gathered(birth, 0)
    assert tickets.choose([(birth, 0) for birth in range(0, 1280, 2)]) == 0
    assert len(asked) == 640


def play(seed: int, max_lag: int, per_step: int, late: str, steps: int) -> tuple[list[int], int, int]:
    """Run admission alone against random arrivals, drops, retries and slow loads.

    Returns:
        Lag of each group taken; times in which nothing at all could move; groups dropped as stale.
    """
    rnd = random.Random(seed)
    running: dict[int, int | None] = {}  # birth -> version at dispatch
    ready: list[tuple[int, int]] = []
    tickets = Admission(Freshness(max_lag, late), per_step, steps, lambda birth: running.get(birth))
    slow = {birth for birth in range(10_000) if rnd.random() < 0.3}
    births = stale = stuck = 0
    lags: list[int] = []
    taken: list[int] = []
    loading: list[int] = []
    while tickets.step < steps:
        for birth, version in [entry for entry in ready if tickets.too_old(entry[1])]:
            ready.remove((birth, version))
            tickets.drop(birth)
            stale += 1
        moves: list[str] = []
        moves += ["open"] * 3 if tickets.may_open else []
        moves += ["dispatch"] * 2 if None in running.values() else []
        able = [birth for birth, version in running.items() if version is not None]
        moves += ["finish"] * 3 if able else []
        moves += ["load"] if loading else []
        chosen = tickets.choose(ready)
        moves += ["take"] * 3 if chosen is not None else []
        if not moves:
            stuck += 1
            break
        move = rnd.choice(moves)
        if move == "open":
            running[births] = None
            tickets.opened(births)
            births += 1
        elif move == "dispatch":
            running[rnd.choice([birth for birth, version in running.items() if version is None])] = tickets.in_force
        elif move == "finish":
            birth = rnd.choice(able)
            if birth in slow and rnd.random() < 0.9 and len(able) > 1:
                continue
            version = running.pop(birth)
            if rnd.random() < 0.1:
                tickets.drop(birth)
            elif rnd.random() < 0.1:
                running[birth] = tickets.in_force  # tried again, with the newest version
            else:
                assert version is not None
                ready.append((birth, version))
                tickets.gathered(birth, version)
        elif move == "load":
            tickets.enforce(loading[-1])
            loading.clear()
        else:
            assert chosen is not None
            birth, version = ready.pop(chosen)
            tickets.take(birth)
            taken.append(birth)
            lags.append(tickets.step - version)
            if len(taken) == per_step:
                tickets.trained(taken)
                taken.clear()
                loading.append(tickets.step)
        assert tickets.held + len(taken) <= tickets.capacity
    return lags, stuck, stale


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 10**9), max_lag=st.integers(0, 3), per_step=st.integers(1, 4))
def test_no_group_is_taken_too_old_and_nothing_hangs_or_goes_stale_when_steps_wait(seed, max_lag, per_step):
    """F3, F4, S16: whatever the order in which groups are ready."""
    lags, stuck, stale = play(seed, max_lag, per_step, "wait", 12)
    assert max(lags) <= max_lag
    assert (stuck, stale) == (0, 0)
    assert len(lags) == 12 * per_step


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10**9), max_lag=st.integers(1, 3), per_step=st.integers(1, 4))
def test_no_group_is_taken_too_old_and_nothing_hangs_when_late_ones_are_dropped(seed, max_lag, per_step):
    lags, stuck, _ = play(seed, max_lag, per_step, "drop", 12)
    assert max(lags) <= max_lag
    assert stuck == 0


def test_tickets_alone_do_not_bound_the_lag():
    """Why there is a selector: with the choice left to arrival some groups are too old, and have to be dropped."""
    assert sum(play(seed, 1, 4, "drop", 12)[2] for seed in range(30)) > 0


@pytest.mark.parametrize("max_lag", [0, 1, 2])
def test_a_group_that_is_open_and_not_dispatched_counts_with_the_version_in_force(max_lag):
    tickets = admission(max_lag, per_step=1)
    for birth in range(max_lag + 1):
        tickets.opened(birth)
    tickets.gathered(0, 0)
    assert tickets.choose([(0, 0)]) == 0


@given(
    st.integers(0, 3),
    st.integers(1, 3),
    st.lists(st.integers(0, 4), min_size=1, max_size=9),
    st.integers(0, 4),
    st.integers(0, 2),
)
@settings(max_examples=200, deadline=None)
def test_a_group_may_become_older_as_long_as_steps_that_take_the_oldest_first_train_all_in_time(
    lag, per_step, ages, age, taken
):
    """P3: what a journal gives back was made earlier. Played: each step takes the oldest there are, and looks at their age."""
    tickets, step = admission(lag, per_step), 10
    tickets.step = tickets.in_force = step
    ages, taken = [min(each, lag) for each in ages], min(taken, per_step - 1)
    for birth, each in enumerate(ages):
        tickets.opened(birth)
        tickets.gathered(birth, step - each)
    for birth in range(100, 100 + taken):
        tickets.opened(birth)
        tickets.take(birth)
    older = [max(age, ages[0]), *ages[1:]]
    waiting, room, in_time = sorted(older, reverse=True), per_step - taken, True
    for later in range(len(older) + 1):
        in_time = in_time and all(each + later <= lag for each in waiting[:room])
        waiting, room = waiting[room:], per_step
    assert tickets.bears(0, step - age) is (in_time and age <= lag)
    assert not tickets.bears(99, step)  # it is not there any more
