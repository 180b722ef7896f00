"""A turn's wait for the pool of its graph, in a real graph in virtual time."""

from collections.abc import Callable

import anyio
import numpy as np
import pytest

from flow import Context, Graph, StageFailed
from flow.testing import Collected, Simulated, simulate
from stages.agents.guards import EpisodeError, GuardedPolicy, TimeLimits
from stages.policy import Sample, SampleRequest


class OneByOne:
    """A policy that takes a second, or what a session is told to take, and heeds no abort."""

    context_length = 8

    def __init__(self, **seconds: float) -> None:
        self.seconds = seconds
        self.asked: list[tuple[str, float]] = []
        self.aborts: list[tuple[str, float]] = []
        self.most = self.now = 0

    async def sample(self, request: SampleRequest) -> Sample:
        self.asked.append((request.session, anyio.current_time()))
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await anyio.sleep(self.seconds.get(request.session, 1))
        finally:
            self.now -= 1
        return Sample(np.zeros(1, np.int32), np.zeros(1, np.float32), np.zeros(1, np.int32), "stop")

    def release(self, session: str) -> None: ...

    def abort(self, session: str) -> None:
        self.aborts.append((session, anyio.current_time()))


def request(session: str) -> SampleRequest:
    return SampleRequest(np.zeros(1, np.int32), 1, (0,), 1.0, (0, 0, 0, 0, 0), session)


def graph_of(
    policy: OneByOne,
    sessions: str,
    limits: TimeLimits | None = None,
    pool: str = "engine",
    meanwhile: Callable[[GuardedPolicy], None] = lambda policy: None,
) -> tuple[Graph, Collected[tuple[str, str, float]]]:
    """One turn for each session, all at once, with one unit for them; they end in (session, how, when).

    Args:
        policy: what is guarded.
        sessions: a letter each.
        limits: of the turns.
        pool: the name asked for.
        meanwhile: called half a second after the turn of each.
    """
    ends: Collected[tuple[str, str, float]] = Collected()

    async def turn(session: str, context: Context) -> tuple[str, str, float]:
        guarded = GuardedPolicy(policy, limits or TimeLimits(), context, pool)
        how = "sampled"
        async with anyio.create_task_group() as group:
            group.start_soon(later, guarded)
            try:
                await guarded.sample(request(session))
            except EpisodeError as fault:
                how = str(fault)
            group.cancel_scope.cancel()
        return session, how, anyio.current_time()

    async def later(guarded: GuardedPolicy) -> None:
        await anyio.sleep(0.5)
        meanwhile(guarded)

    graph = Graph("turns", pools={"engine": 1})
    graph.source("sessions", sessions) >> graph.stage("turn", turn, workers=len(sessions)) >> graph.sink("ends", ends)
    return graph, ends


def run(graph: Graph, ends: Collected[tuple[str, str, float]]) -> tuple[list[tuple[str, str, float]], Simulated]:
    simulated = simulate(graph)
    return [(session, how, round(at, 3)) for session, how, at in ends.values], simulated


def test_turns_beyond_the_pool_wait_in_order_and_their_wait_is_the_pools():
    """Of three turns of a second over one unit the others wait one and two: as long in all as there is work."""
    policy = OneByOne()
    ends, simulated = run(*graph_of(policy, "abc"))
    assert ends == [("a", "sampled", 1.0), ("b", "sampled", 2.0), ("c", "sampled", 3.0)]
    assert policy.most == 1
    shares = simulated.summary.nodes["turn"].shares
    assert shares["pool"] == pytest.approx(shares["work"], abs=1e-3)


def test_the_limit_of_a_turn_counts_from_its_request_whether_it_waits_or_is_asked():
    """S33: ``b`` is aborted after 1.5 s of which it waited one, and cancelled when the grace is over; ``c`` is never asked."""
    policy = OneByOne(b=9, c=9)
    ends, _ = run(*graph_of(policy, "abc", TimeLimits(model_s=1.5, abort_s=1)))
    late = "timed_out: the model took over 1.5 s"
    assert sorted(ends) == [("a", "sampled", 1.0), ("b", late, 2.5), ("c", late, 1.5)]
    assert policy.asked == [("a", 0), ("b", 1)]
    assert sorted(policy.aborts) == [("b", 1.5), ("c", 1.5)]


def test_an_abort_ends_the_wait_of_its_session_alone():
    """S90: also where nothing was asked yet."""
    policy = OneByOne()
    ends, _ = run(*graph_of(policy, "abc", meanwhile=lambda guarded: guarded.abort("b")))
    assert sorted(ends) == [("a", "sampled", 1.0), ("b", "cancelled: the model's turn was aborted", 0.5), ("c", "sampled", 2.0)]
    assert [session for session, _ in policy.asked] == ["a", "c"]


@pytest.mark.parametrize("seed", range(10))
def test_no_unit_is_lost_whenever_a_turn_is_cancelled_or_aborted(seed: int):
    """S9: workers are killed at any step; at the end of a simulated run every pool is full, or it fails."""
    policy = OneByOne(a=1.2, d=2)
    graph, ends = graph_of(policy, "abcdef", TimeLimits(model_s=3, abort_s=0.5))
    simulate(graph, seed, kill=0.2, late=0.1)
    assert sorted(session for session, _, _ in ends.values) == [*"abcdef"]
    assert policy.most == 1


def test_a_pool_the_graph_has_not_is_a_mistake_and_no_failed_turn():
    graph, _ = graph_of(OneByOne(), "a", pool="motor")
    with pytest.raises(StageFailed) as failed:
        simulate(graph)
    cause = failed.value.__cause__
    assert isinstance(cause, ExceptionGroup)
    assert "asks for 1 of pool 'motor', which does not exist" in str(cause.exceptions[0])
