"""The whole core of small graphs against books kept beside it (``core_world``): random transitions, all invariants after each.

C1 every item in one place, with its old position, version, attempt and retry; C4 an edge ends when nothing can come back; F1
versions grow; F3 tickets are conserved; F4 nothing too old is consumed; G1, G5 no group opens twice and late members are
counted; S2 order and keys; S3 pools are conserved; P1, P2 a moment put into a fresh state goes on as if nothing had happened.
"""

import pytest
from core_shapes import SHAPES, plan_of
from core_world import ALWAYS, SPECIAL, World
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from flow._core.moment import capture, restore
from flow._core.state import State

OPERATIONS = sorted({*ALWAYS, *(name for names in SPECIAL.values() for name in names)})


class CoreMachine(RuleBasedStateMachine):
    """Shrinks what it finds to a few operations. Rules C1, C4, F1, F3, F4, G1, G5, S2, S3, P1, P2."""

    @initialize(shape=st.sampled_from(SHAPES))
    def start(self, shape):
        self.world = World(shape)

    @rule(operation=st.sampled_from(OPERATIONS), pick=st.integers(0, 2**20 - 1))
    def act(self, operation, pick):
        getattr(self.world, operation)(pick)

    @invariant()
    def the_books_agree(self):
        self.world.check()


QUIET = [HealthCheck.too_slow]
CoreMachine.TestCase.settings = settings(
    max_examples=200, stateful_step_count=80, deadline=None, derandomize=True, suppress_health_check=QUIET
)
TestCoreMachine = pytest.mark.slow(CoreMachine.TestCase)


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_the_books_agree_over_long_walks(shape):
    """As the machine, longer and without shrinking."""
    for seed in range(3):
        World(shape).run(seed, 1500)


@pytest.mark.slow
def test_long_walks_come_everywhere():
    """A walk that never drops for age, never closes late and never completes would prove nothing about it."""
    ended = World("two sinks").books.ended
    for shape in ("loop, late dropped and retry", "two sinks", "inside"):
        for seed in range(6):
            world = World(shape)
            world.run(seed, 1500)
            ended += world.books.ended
    assert {"trained", "stale", "late", "gathered", "group dropped", "not tried again", "no output", "surplus"} <= set(ended)


@pytest.mark.soak
@pytest.mark.parametrize("shape", SHAPES)
def test_the_books_agree_over_very_many_walks(shape):
    for seed in range(400):
        World(shape).run(seed, 3000)


def test_a_moment_in_the_middle_of_a_retry_counts_it():
    """S15: restored, the item has the retries it had used, not its first again."""
    state = State(plan_of("line"))
    world = World("line")
    world._adopt(state)
    for operation in ("draw", "take", "retry"):
        getattr(world, operation)(0)
    fresh = State(plan_of("line"))
    restore(fresh, capture(state))
    (item,) = fresh.nodes["b"].inputs[0].buffer
    assert (item.retry, item.retries, item.attempt) == (1, 1, 1)


def test_what_became_too_old_between_the_barrier_and_the_sink_gives_its_ticket_back():
    """F3, F4: with late="drop" a group that waits before a stage is given up in the moment it became too old."""
    world = World("loop, late dropped")
    kept, admission = world.nodes["kept"], world.nodes["train"].admission
    assert admission is not None
    make_group(world)
    for step in (1, 2):
        make_group(world)
        slow = world._lease(kept, 0)
        world._lease(kept, 0)
        world.pass_on(0x80000)  # the second goes first
        world.give_back(0)
        for operation in ("take_for_step", "finish_step", "load", "load"):
            getattr(world, operation)(0)
        world.check()
        assert (slow.path in world.books.items) == (step == 1)
    assert world.books.ended["stale"] == 1
    assert (admission.held, dict(kept.meter.dropped)) == (0, {"stale": 1})


def make_group(world: World) -> None:
    """Open a group, make its members, and have it wait behind its barrier."""
    world.draw(0)
    world._lease(world.nodes["members"], 0)
    world.open_group(0)
    for _ in range(2):
        world._lease(world.nodes["work"], 0)
        world.pass_on(0x80000)
        world.absorb(0)
    world.release_ready(0)
