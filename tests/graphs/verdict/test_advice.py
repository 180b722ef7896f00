"""What to try next follows from what bounds, and names its figure."""

from typing import Any

import pytest

from flow.explain import GraphVerdict, Lever, Part, PoolUse, Slow, Stage, Stragglers, Verdict
from graphs.verdict.advice import advised


def stage(name: str, workers: int = 1, work: float = 0.5, **pools: float) -> Stage:
    return Stage(name, workers, 10, 1.0, work, 1 - work, 0.0, 0.0, 0.0, pools)


def graph(bound: Lever, **changes: Any) -> GraphVerdict:
    given: dict[str, Any] = {
        "graph": "rl", "start": 0.0, "seconds": 100.0, "sink": "trainer", "steps": 10, "step": 10.0, "bound": bound,
        "runners_up": (), "experiments": {}, "path": (), "way": (), "way_step": 0, "idle": 0.6, "idle_by": (),
        "stages": (stage("prompts"), stage("episodes", 8, 0.9, engine=0.3), stage("rewards", 2), stage("trainer", 1, 0.4)),
        "stragglers": None, "asked": (), "levels": (), "dropped": {}, "retried": {}, "overdue": {}, "stalls": (),
    }  # fmt: skip
    return GraphVerdict(**{**given, **changes})


def whole(*slow: Slow) -> Verdict:
    return Verdict(100.0, 1000, (), slow, (), 0)


def row(name: str, seconds: float) -> Slow:
    return Slow("episodes", name, "", 10, seconds, 1.0, 2.0, 3.0, 4.0)


@pytest.mark.parametrize(
    ("lever", "what", "why"),
    [
        (Lever("sink", "trainer", 0.8, 0.4), "mesh for the trainer", "80% of the critical path"),
        (Lever("tickets", "weights", 0.6, 0.5), "--rl.max-lag", "trainer waits 60%"),
        (Lever("load", "weights", 0.3, 0.2), "weight syncs", "30% of the critical path"),
        (Lever("compile", "trainer", 0.3, 0.2), "fewer shapes", "30% of the critical path"),
        (Lever("source", "prompts", 0.5, 0.2), "prepared beforehand", "prompts drawing"),
        (Lever("pool", "engine", 0.3, 0.4), "--engine.slots", "episodes waits for it 30%"),
        (Lever("pool", "sandbox", 0.3, 0.4), "pool sandbox (--rl.pools)", "30% of the critical path"),
        (Lever("stage", "rewards", 0.7, 0.4), "a faster rewards", "70% of the critical path"),
    ],
)
def test_each_bottleneck_has_its_experiment_and_its_figure(lever: Lever, what: str, why: str) -> None:
    first = advised(graph(lever), whole())[0]
    assert what in first.what
    assert why in first.why
    assert first.gain == lever.gain


def test_a_pool_that_is_full_of_permits_inside_attempts_is_said_to_be() -> None:
    lever = Lever("pool", "sandbox", 0.3, 0.4)
    inside = PoolUse("sandbox", 4.0, 0.97, {"episodes": 0.9, "rewards": 0.07})
    first = advised(graph(lever, pools=(inside,)), whole())[0]
    assert first.why.endswith("; 97% of its units are held, mostly by permits inside episodes")
    whole_attempts = PoolUse("sandbox", 4.0, 0.97, {})
    assert advised(graph(lever, pools=(whole_attempts,)), whole())[0].why.endswith("; 97% of its units are held")


def test_a_stage_whose_workers_are_all_busy_gets_more_of_them_where_that_helps() -> None:
    found = advised(graph(Lever("stage", "rewards", 0.7, 0.4), experiments={"rewards": 0.35}), whole())
    assert found[0].what.startswith("more workers for rewards, 2 -> 4")
    assert found[0].gain == 0.35


def test_episodes_that_take_long_are_looked_into() -> None:
    lever = Lever("stage", "episodes", 0.7, 0.4)
    slow_tool = advised(graph(lever), whole(row("episodes", 100.0), row("tool", 70.0), row("search", 65.0), row("model", 20.0)))
    assert slow_tool[0].what == "a faster tool search, p99 3 s"
    assert slow_tool[0].why.startswith("70% of an episode's time")
    slow_model = advised(graph(lever), whole(row("episodes", 100.0), row("tool", 10.0), row("model", 80.0)))
    assert "80% of an episode's time it waits for the model" in slow_model[0].why


def test_groups_that_wait_for_one_member_are_a_reason_to_bound_episodes() -> None:
    late = Stragglers(100, 60, 30.0, 0.3, (("1.2", 2.0),))
    found = advised(graph(Lever("stage", "episodes", 0.7, 0.4), stragglers=late), whole())
    assert found[-1].why == "60 of 100 groups waited for one member, 30% of their time"


def test_late_hand_overs_are_a_reason_to_look_at_the_event_loop() -> None:
    path = (Part("work", "episodes", 80.0, 0.8), Part("hand-over", "groups", 20.0, 0.2))
    found = advised(graph(Lever("sink", "trainer", 0.8, 0.01), path=path), whole())
    assert [each.why for each in found] == ["20% of the critical path is hand-overs that came late; see the counter loop lag"]


def test_nothing_is_advised_that_would_bring_nothing() -> None:
    assert advised(graph(Lever("sink", "trainer", 0.8, 0.01)), whole()) == ()
