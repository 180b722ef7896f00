"""Transitions of a whole graph, without a loop: what is stamped, dropped, given up, and how the ledger adds up."""

import random

import pytest

from flow import Collect, Context, Freshness, Gathered, Graph, Retry
from flow._core.item import Item
from flow._core.node import NodeState
from flow._core.state import State


def keep(value: int, context: Context) -> int:
    return value


def sink(value: int, context: Context) -> None:
    """Takes all."""


class Train:
    def add(self, value: Gathered[int], context: Context) -> None:
        """Takes all."""

    def finish(self, context: Context) -> str:
        return "next"


def line() -> State:
    graph = Graph("line")
    a, b, c = graph.source("a", [1]), graph.stage("b", keep), graph.sink("c", sink)
    _ = a >> b >> c
    return State(graph.build())


def loop(max_lag: int = 1, late: str = "wait", n: int = 2, second: bool = False) -> State:
    graph = Graph("loop")
    cell = graph.latest("w", str)
    tasks = graph.source("tasks", [1])
    members = graph.repeat("members", tasks, n=n)
    work = graph.stage("work", keep, reads=cell)
    again = graph.stage("again", keep, reads=cell)
    groups = graph.group("groups", again, missing=Retry(1, then="drop"))
    train = graph.sink("train", Train(), collect=Collect(1))
    _ = (tasks >> members >> work >> again >> groups >> train) if second else (tasks >> members >> work >> groups >> train)
    if not second:
        del graph._nodes["again"]
    graph.feedback(train, cell, initial="first", freshness=Freshness(max_lag, late))
    state = State(graph.build())
    state.cells["w"].start("first")
    return state


def feed(state: State, name: str, number: int) -> None:
    state.emit(state.nodes[name], [Item(number, (number,), number)])


def open_group(state: State) -> list[Item]:
    node = state.nodes["members"]
    lease = state.lease(node)
    members = state.open_group(node, lease)
    state.commit(node, lease, members)
    return members


def pass_on(state: State, node: NodeState) -> None:
    lease = state.lease(node)
    state.commit(node, lease, [lease.derive(lease.value, state.stamp(node, lease))])


def step(state: State, version: int) -> None:
    """Train on what waits, and put the next version in force."""
    node = state.nodes["train"]
    state.commit_step(node, [state.take_for_step(node, 0)])
    state.cells["w"].publish("next")
    state.cells["w"].enforce(version, "next")


def test_each_item_ends_in_one_count():
    """C1: taken = finished + dropped + out, at every moment; the ledger says where it would not add up."""
    state = line()
    for number in range(3):
        feed(state, "a", number)
    node = state.nodes["b"]
    first, second, third = (state.lease(node) for _ in range(3))
    state.commit(node, first, [first])
    state.drop(node, second, "dull")
    assert state.faults() == []
    assert state.leftovers() == {"b (leased)": 1, "b->c": 1}
    state.give_back(node, third)
    assert state.faults() == []
    assert (node.input.taken, node.meter.finished, dict(node.meter.dropped), node.meter.given_back) == (2, 1, {"dull": 1}, 1)


def test_the_ledger_finds_an_item_that_vanished():
    state = line()
    feed(state, "a", 0)
    assert state.nodes["b"].input is not None
    state.nodes["b"].input.buffer.clear()
    assert state.faults() == ["a->b: 1 put, 0 taken and 0 waiting"]


def test_the_ledger_finds_a_lease_that_ended_without_a_record():
    state = line()
    feed(state, "a", 0)
    node = state.nodes["b"]
    assert node.input is not None
    node.input.settle(state.lease(node))
    assert state.faults() == ["b: took 1, but 0 ended and 0 are out"]


def test_a_lease_ends_only_once():
    state = line()
    feed(state, "a", 0)
    node = state.nodes["b"]
    lease = state.lease(node)
    state.commit(node, lease, [lease])
    with pytest.raises(AssertionError, match="only once"):
        state.give_back(node, lease)


def test_an_item_is_as_old_as_the_oldest_version_that_went_into_it():
    """S18, S84: a second stage that reads the cell does not make the item younger."""
    state = loop(second=True, n=1)
    feed(state, "tasks", 0)
    open_group(state)
    pass_on(state, state.nodes["work"])
    state.cells["w"].publish("next")
    state.cells["w"].enforce(1, "next")
    lease = state.lease(state.nodes["again"])
    assert (lease.seen, state.stamp(state.nodes["again"], lease)) == (1, 0)
    groups = state.nodes["groups"].groups
    assert groups is not None
    assert groups.open[0].version == 0


def test_a_member_that_is_tried_again_is_as_old_as_its_new_dispatch():
    state = loop(n=1)
    feed(state, "tasks", 0)
    open_group(state)
    work = state.nodes["work"]
    state.drop(work, state.lease(work), "broken")
    state.cells["w"].publish("next")
    state.cells["w"].enforce(1, "next")
    groups = state.nodes["groups"].groups
    assert groups is not None
    state.emit(state.nodes["members"], [groups.retries.popleft()])
    lease = state.lease(work)
    assert (lease.retry, state.stamp(work, lease), groups.open[0].version) == (1, 1, 1)


def test_an_open_group_that_became_too_old_is_closed_and_none_of_its_members_starts():
    """S17: half of the group is done, nothing of it runs, the version moves past the limit."""
    state = loop(max_lag=1, late="drop")
    groups, work = state.nodes["groups"].groups, state.nodes["work"]
    assert groups is not None
    feed(state, "tasks", 0)
    open_group(state)
    pass_on(state, work)
    state.absorb(state.nodes["groups"], state.lease(state.nodes["groups"]))
    assert groups.open[0].version == 0
    waiting = state.nodes["work"].input
    assert waiting is not None
    held_back = state.lease(work)  # the second member, out of the way while others are made
    for version in (1, 2):
        feed(state, "tasks", version)
        open_group(state)
        for _ in range(2):
            pass_on(state, work)
            state.absorb(state.nodes["groups"], state.lease(state.nodes["groups"]))
        state.release_ready(state.nodes["groups"])
        step(state, version)
    assert state.nodes["groups"].meter.dropped["stale"] == 1
    assert not groups.open
    assert state.unwanted(work, held_back) == "group closed"
    state.give_back(work, held_back)
    assert state.faults() == []


def test_a_dropped_group_gives_its_ticket_back_wherever_it_is_dropped():
    state = loop(max_lag=0, n=1)
    admission = state.nodes["members"].admission
    assert admission is not None
    feed(state, "tasks", 0)
    open_group(state)
    assert not admission.may_open
    work = state.nodes["work"]
    pass_on(state, work)
    groups = state.nodes["groups"]
    state.absorb(groups, state.lease(groups))
    state.release_ready(groups)
    train = state.nodes["train"]
    state.drop(train, state.lease(train), "dull")
    assert admission.may_open


def test_items_that_leave_in_order_wait_for_those_before_them():
    """S2: order="input"; an older item that was given back is older still."""
    graph = Graph("ordered")
    a, b, c = graph.source("a", [1]), graph.stage("b", keep, workers=3, order="input"), graph.sink("c", sink)
    _ = a >> b >> c
    state = State(graph.build())
    for number in range(3):
        feed(state, "a", number)
    node = state.nodes["b"]
    first, second = state.lease(node), state.lease(node)
    assert state.has_turn(node, first)
    assert not state.has_turn(node, second)
    state.give_back(node, first)
    assert not state.has_turn(node, second)
    first = state.lease(node)
    assert first.position == 0
    state.drop(node, first, "dull")
    assert state.has_turn(node, second)


@pytest.mark.parametrize("seed", range(20))
def test_random_transitions_keep_the_ledger(seed):
    """C1, F3: after every transition, with kills, drops and retries in any order."""
    rnd, state = random.Random(seed), loop(max_lag=1, n=2)
    work, groups, train, members = (state.nodes[name] for name in ("work", "groups", "train", "members"))
    admission, table, out, number, version = members.admission, members.groups, [], 0, 0
    assert admission is not None
    assert table is not None
    for _ in range(300):
        move = rnd.choice(["feed", "open", "lease", "lease", "end", "end", "absorb", "release", "retry", "step"])
        if move == "feed" and members.input is not None and members.input.fits([Item(0, (0,), 0)]):
            feed(state, "tasks", number)
            number += 1
        elif move == "open" and members.input and len(members.input) and admission.may_open:
            open_group(state)
        elif move == "lease" and work.input is not None and len(work.input):
            out.append(state.lease(work))
        elif move == "end" and out:
            lease = out.pop(rnd.randrange(len(out)))
            fate = rnd.choice(["commit", "commit", "drop", "give back"])
            if fate == "commit":
                state.commit(work, lease, [lease.derive(1, state.stamp(work, lease))])
            elif fate == "drop":
                state.drop(work, lease, "broken")
            else:
                state.give_back(work, lease)
        elif move == "absorb" and groups.input is not None and len(groups.input):
            state.absorb(groups, state.lease(groups))
        elif move == "release" and groups.ready:
            state.release_ready(groups)
        elif move == "retry" and table.retries:
            state.emit(members, [table.retries.popleft()])
        elif move == "step" and train.input is not None and len(train.input):
            waiting = train.input.buffer
            index = admission.choose([(item.birth, item.version) for item in waiting])
            if index is not None:
                assert (admission.lag(waiting[index].version) or 0) <= 1
                state.commit_step(train, [state.take_for_step(train, index)])
                version += 1
                state.cells["w"].publish("next")
                state.cells["w"].enforce(version, "next")
                admission.enforce(version)
        assert state.faults() == []
        assert admission.held <= admission.capacity
        assert admission.held - len(admission._trained) == len(table.open) + len(groups.ready) + len(train.input or ())
