"""Two runs side by side: what changed is told, what did not is not."""

import msgspec

from flow.explain import GraphVerdict, Lever, Part, Slow, Stage, Verdict
from graphs.verdict.compared import Setting, compared, differing, pairs


def graph(name: str, step: float, episodes: float) -> GraphVerdict:
    path = (Part("work", "episodes", 60.0, episodes), Part("work", "trainer", 40.0, 1 - episodes))
    stages = (
        Stage("episodes", 8, 10, 1.0, 0.5, 0.5, 0.0, 0.0, 0.0, {}),
        Stage("trainer", 1, 10, 1.0, 0.4, 0.6, 0.0, 0.0, 0.0, {}),
    )
    bound = Lever("stage", "episodes", episodes, 0.4)
    return GraphVerdict(
        name, 0.0, 100.0, "trainer", 10, step, bound, (), {}, stages, path, (), 0, 0.6, (), None, (), (), {}, {}, {}, ()
    )  # fmt: skip


def verdict(step: float, episodes: float, p50: float) -> Verdict:
    slow = (
        Slow("episodes", "model", "", 100, 100.0, p50, 2.0, 3.0, 4.0),
        Slow("episodes", "tool", "", 5, 5.0, 1.0, 1.0, 1.0, 1.0),
    )
    return Verdict(100.0, 1000, (graph("sft", 1.0, 0.0), graph("rl", step, episodes)), slow, (), 0)


def test_steps_paths_slow_work_and_settings_that_changed_are_told() -> None:
    settings = (Setting("rl.max_lag", 0, 1),)
    text = compared(verdict(2.0, 0.8, 0.5), verdict(1.0, 0.5, 1.0), settings, ("runs/a", "runs/b"))
    rows = [line.split() for line in text.splitlines()]
    assert ["a", "step,", "median", "2", "s", "1", "s", "-50%"] in rows
    assert ["episodes", "at", "work", "80%", "50%"] in rows
    assert ["episodes", ">", "model", "500", "ms", "1", "s", "+100%"] in rows
    assert not [line for line in rows if "tool" in line]
    assert ["rl.max_lag", "0", "1"] in rows
    assert max(len(line) for line in text.splitlines()) <= 80


def test_graphs_of_one_name_are_paired_in_order_and_what_the_other_lacks_is_left_out() -> None:
    one = verdict(2.0, 0.8, 0.5)
    again = msgspec.structs.replace(one, graphs=(one.graphs[1], one.graphs[1]))
    assert [mine.graph for mine, _ in pairs(again, one)] == ["rl"]


def test_settings_that_differ_are_found_at_any_depth() -> None:
    one = {"seed": 0, "rl": {"steps": 4, "loss": {"kind": "grpo"}}, "only": 1}
    other = {"seed": 0, "rl": {"steps": 8, "loss": {"kind": "grpo"}}}
    assert list(differing(one, other)) == [Setting("rl.steps", 4, 8), Setting("only", 1, None)]
