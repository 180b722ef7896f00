"""Workers that are called step by step hear of room only where they lack it, and of it whenever they do."""

from flow import Collect, Freshness, Graph
from flow._core.channel import Channel
from flow._core.fans import Merge
from flow._core.item import Item
from flow._workers.fanout import Repeat
from flow.testing import Collected, simulate


def test_a_merge_whose_turn_is_too_heavy_lacks_room_though_another_input_has_something_light():
    """C5, C7, W1: who waits for room must be known to wait for it, or it is not told when there is some."""
    heavy, light, after = Channel("heavy->m", 4), Channel("light->m", 4), Channel("m->out", 9, 4.0, float)
    merge = Merge([light, heavy], [after], [1, 2], 8)
    for edge, value in ((after, 2), (heavy, 3), (light, 1)):
        edge.put([Item(value, (0,), 0)])
    assert merge.choose() is None
    assert merge.blocked is after
    after.settle(after.take())
    assert merge.blocked is None
    assert merge.choose() == (heavy, [after])


def test_a_repeat_that_waits_for_tickets_is_not_called_for_each_member_that_is_taken(monkeypatch):
    """S1: with a step for each, a hand-over behind a repeat would cost two."""
    steps, real = [0], Repeat.step

    def counted(self):
        steps[0] += 1
        return real(self)

    monkeypatch.setattr(Repeat, "step", counted)
    graph, trained = Graph("training"), Collected()
    cell = graph.latest("steps", int)
    tasks = graph.source("tasks", range(100))
    members = graph.repeat("members", tasks, n=4)
    plays = graph.stage("plays", lambda value, context: value, workers=16, reads=cell)
    sink = graph.sink("sink", trained, collect=Collect(4, steps=16))
    tasks >> members >> plays >> graph.group("groups", plays) >> sink
    graph.feedback(sink, cell, initial=0, freshness=Freshness(1))
    summary = simulate(graph).summary
    assert len(trained.arrivals) == 64
    assert steps[0] < summary.nodes["plays"].taken / 2
