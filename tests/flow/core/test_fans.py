"""Fans alone: which item goes next and where to. A merge is compared with a count of what each input was passed over."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flow._core.channel import Channel
from flow._core.fans import Balance, Broadcast, Merge, Route
from flow._core.item import Item
from flow._spec import enough_patience


def channels(count: int, most: int = 1000) -> list[Channel]:
    return [Channel(f"edge {index}", most) for index in range(count)]


def put(edge: Channel, value: int) -> None:
    edge.put([Item(value, (value,), value)])


def move(fan) -> tuple[Channel, list[Channel]] | None:
    """Move one item as the state does."""
    chosen = fan.choose()
    if chosen is None:
        return None
    source, targets = chosen
    item = source.take()
    source.settle(item)
    for edge, copy in zip(targets, fan.copies(item), strict=True):
        edge.put([copy])
    fan.moved(source)
    return source, list(targets)


def filled_merge(weights: list[int], patience: int, count: int = 0) -> Merge:
    merge = Merge(channels(len(weights)), channels(1, 10**6), weights, patience)
    for edge in merge.inputs:
        for value in range(count):
            put(edge, value)
    return merge


@given(st.lists(st.integers(1, 6), min_size=2, max_size=5))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_in_every_round_each_input_of_a_merge_has_its_share(weights):
    """C7: where all have items, w of every sum(w) moves are those of an input of weight w."""
    merge = filled_merge(weights, patience=1000, count=3 * max(weights))
    for _ in range(3):
        served = Counter(merge.inputs.index(move(merge)[0]) for _ in range(sum(weights)))
        assert [served[index] for index in range(len(weights))] == weights


def test_no_input_is_served_in_a_row_while_others_of_its_weight_have_items():
    """C7: smooth: of three inputs of weight 2, 1, 1 the first goes every other time."""
    merge = filled_merge([2, 1, 1], patience=100, count=20)
    order = [merge.inputs.index(move(merge)[0]) for _ in range(20)]
    assert order[:8] == [0, 1, 2, 0, 0, 1, 2, 0]
    equal = filled_merge([1, 1, 1], patience=100, count=20)
    served = [equal.inputs.index(move(equal)[0]) for _ in range(30)]
    assert all(served[i : i + 3] == served[:3] for i in range(0, 30, 3))
    assert sorted(served[:3]) == [0, 1, 2]


@given(st.lists(st.integers(1, 40), min_size=2, max_size=6))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_the_patience_that_follows_from_the_weights_keeps_them(weights):
    """C7: a merge of which nobody said a patience gives each input its share in every round."""
    merge = filled_merge(weights, enough_patience(weights), count=2 * max(weights))
    for _ in range(2):
        served = Counter(merge.inputs.index(move(merge)[0]) for _ in range(sum(weights)))
        assert [served[index] for index in range(len(weights))] == weights


@given(
    weights=st.lists(st.integers(1, 50), min_size=2, max_size=5),
    patience=st.integers(1, 8),
    arrivals=st.lists(st.integers(0, 31), max_size=120),
)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_no_input_with_an_item_is_passed_over_more_often_than_the_patience(weights, patience, arrivals):
    """C7: whatever arrives when; where several are at their bound at once, one of them goes each time."""
    merge = filled_merge(weights, patience)
    passed: Counter[Channel] = Counter()
    for number, mask in enumerate(arrivals):
        for index, edge in enumerate(merge.inputs):
            if mask >> index & 1:
                put(edge, number)
        ready = [edge for edge in merge.inputs if edge.buffer]
        moved = move(merge)
        assert (moved is None) == (not ready)
        for edge in merge.inputs:
            passed[edge] = passed[edge] + 1 if edge in ready and moved is not None and edge is not moved[0] else 0
            assert passed[edge] <= patience + len(weights) - 2


def test_an_input_without_items_saves_nothing_up():
    """One that was silent for long has no more than its share when it speaks again."""
    merge = filled_merge([1, 1], patience=100)
    for value in range(50):
        put(merge.inputs[0], value)
        move(merge)
    for value in range(10):
        put(merge.inputs[0], value)
        put(merge.inputs[1], value)
    served = Counter(merge.inputs.index(move(merge)[0]) for _ in range(10))
    assert served == {0: 5, 1: 5}


def test_a_merge_waits_for_room_with_the_choice_it_made():
    merge = Merge(channels(2), channels(1, 1), [1, 1], 8)
    put(merge.inputs[0], 0)
    put(merge.inputs[1], 1)
    assert move(merge) is not None
    assert move(merge) is None
    assert merge.blocked is merge.outputs[0]
    merge.outputs[0].settle(merge.outputs[0].take())
    assert move(merge)[0] is merge.inputs[1]


def test_a_broadcast_gives_to_all_or_to_none():
    """C9: the slowest branch governs, and copies are told apart by their paths."""
    fan = Broadcast(channels(1), [Channel("quick", 10), Channel("slow", 1)])
    put(fan.inputs[0], 7)
    put(fan.inputs[0], 8)
    assert move(fan) is not None
    assert move(fan) is None
    assert [len(edge) for edge in fan.outputs] == [1, 1]
    assert fan.blocked is fan.outputs[1]
    assert [edge.buffer[0].path for edge in fan.outputs] == [(7, 0), (7, 1)]
    fan.outputs[1].settle(fan.outputs[1].take())
    assert move(fan) is not None
    assert [len(edge) for edge in fan.outputs] == [2, 1]


@pytest.mark.parametrize("seed", range(5))
def test_a_balance_serves_in_turn_and_skips_who_is_full(seed):
    rnd = random.Random(seed)
    fan = Balance(channels(1), channels(3, 2))
    served, passed = Counter(), Counter()
    for number in range(300):
        put(fan.inputs[0], number)
        full = [edge for edge in fan.outputs if len(edge) == edge.max_items]
        moved = move(fan)
        if moved is None:
            assert len(full) == 3
            assert fan.blocked in fan.outputs
        else:
            (target,) = moved[1]
            assert target not in full
            served[target] += 1
            for edge in fan.outputs:
                passed[edge] = 0 if edge is target or edge in full else passed[edge] + 1
                assert passed[edge] <= 2
        for edge in fan.outputs:
            if edge.buffer and rnd.random() < 0.4:
                edge.settle(edge.take())
    assert set(served) == set(fan.outputs)


def test_a_balance_that_is_never_full_gives_each_the_same():
    fan = Balance(channels(1), channels(3))
    for number in range(30):
        put(fan.inputs[0], number)
        move(fan)
    assert [len(edge) for edge in fan.outputs] == [10, 10, 10]


def test_a_balance_gives_nothing_to_a_branch_that_is_complete():
    """It would swallow without end what the others need."""
    fan = Balance(channels(1), channels(3, 2))
    fan.outputs[1].unwanted = True
    for number in range(6):
        put(fan.inputs[0], number)
    assert [fan.outputs.index(move(fan)[1][0]) for _ in range(4)] == [0, 2, 0, 2]
    assert move(fan) is None


def test_a_route_asks_for_the_key_once_and_waits_for_its_branch_alone():
    asked = []
    fan = Route(channels(1), channels(2, 1), lambda value: asked.append(value) or value % 2, {0: 0, 1: 1})
    for value in (2, 4, 1):
        put(fan.inputs[0], value)
    assert move(fan)[1] == [fan.outputs[0]]
    assert [move(fan), move(fan)] == [None, None]  # 4 waits for its branch, and 1 behind it
    assert fan.blocked is fan.outputs[0]
    assert asked == [2, 4]
    fan.outputs[0].settle(fan.outputs[0].take())
    assert move(fan)[1] == [fan.outputs[0]]
    assert move(fan)[1] == [fan.outputs[1]]
    assert asked == [2, 4, 1]


def test_a_route_without_a_branch_for_a_key_says_which_there_are_and_moves_nothing():
    fan = Route(channels(1), channels(2), lambda value: value, {"a": 0, "b": 1})
    put(fan.inputs[0], 3)
    with pytest.raises(KeyError, match=r"a key with a branch \('a', 'b'\), got 3"):
        fan.choose()
    assert len(fan.inputs[0]) == 1
    broken = Route(channels(1), channels(1), lambda value: 1 // value, {1: 0})
    put(broken.inputs[0], 0)
    with pytest.raises(ZeroDivisionError):
        broken.choose()


def test_a_fan_remembers_its_turn_across_a_moment():
    """P2: a merge and a balance go on where they were."""
    merge, balance = filled_merge([3, 1], 8, 20), Balance(channels(1), channels(3))
    for number in range(5):
        put(balance.inputs[0], number)
        move(merge)
        move(balance)
    second, other = filled_merge([3, 1], 8, 20), Balance(channels(1), channels(3))
    second.turn, other.turn = merge.turn, balance.turn
    for number in range(12):
        assert second.inputs.index(move(second)[0]) == merge.inputs.index(move(merge)[0])
        put(balance.inputs[0], number)
        put(other.inputs[0], number)
        assert other.outputs.index(move(other)[1][0]) == balance.outputs.index(move(balance)[1][0])
