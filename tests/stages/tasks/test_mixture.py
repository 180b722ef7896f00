from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flow.saving._declared import check_resumable
from stages.records import Task
from stages.tasks.generated import Generated
from stages.tasks.iterated import Iterated
from stages.tasks.mixture import Mixture
from stages.tasks.source import Tasks


def endless(name: str) -> Generated:
    return Generated(lambda seed, index: Task(f"{name}{index}", "?", source="file"), 0)


def some(name: str, number: int, epochs: int = 1) -> Tasks:
    return Tasks([Task(f"{name}{index}", "?") for index in range(number)], 0, epochs=epochs)


def mixed(weights: dict[str, float], seed: int = 0) -> Mixture:
    return Mixture({name: (endless(name), weight) for name, weight in weights.items()}, seed)


def order(mixture: Mixture, number: int) -> list[str]:
    return [mixture.draw().source for _ in range(number)]


@given(
    weights=st.dictionaries(
        st.text("abcdefgh", min_size=1, max_size=2), st.one_of(st.integers(1, 50), st.floats(0.01, 50)), min_size=1, max_size=8
    ),
    seed=st.integers(0, 5),
)
@settings(max_examples=20, deadline=None)
def test_at_every_point_each_source_was_drawn_its_share_to_within_one(weights, seed):
    """Counted in fractions, so that "within" means it."""
    total = sum(Fraction(str(weight)) for weight in weights.values())
    counts = Counter()
    mixture = mixed(weights, seed)
    for number in range(1, 121):
        counts[mixture.draw().source] += 1
        for name, weight in weights.items():
            assert abs(counts[name] - number * Fraction(str(weight)) / total) < 1


def test_a_task_says_the_name_it_was_mixed_under():
    task = mixed({"sums": 1}).draw()
    assert (task.id, task.source) == ("sums0", "sums")


def test_the_order_is_pinned_and_does_not_depend_on_how_it_was_written():
    """A resumed run counts on it."""
    assert "".join(order(mixed({"a": 5, "b": 2, "c": 1}), 16)) == "".join(order(mixed({"c": 10, "a": 50, "b": 20}), 16))
    assert "".join(order(mixed({"a": 5, "b": 2, "c": 1}), 8)) == PINNED


PINNED = "abaaacba"


def test_the_seed_decides_between_sources_that_are_due_at_once():
    firsts = {tuple(order(mixed({"a": 1, "b": 1, "c": 1}, seed), 3)) for seed in range(12)}
    assert len(firsts) > 1
    assert {tuple(sorted(first)) for first in firsts} == {("a", "b", "c")}


def test_a_mixture_stops_when_it_is_the_turn_of_a_source_that_is_over():
    """S3: b has four tasks in two passes; its fifth turn is among draws 16 to 19."""
    mixture = Mixture({"a": (endless("a"), 3), "b": (some("b", 2, epochs=2), 1)})
    counts = Counter(task.source for task in iter(mixture.draw, None))
    assert counts["b"] == 4
    assert counts["a"] in range(12, 16)
    with pytest.raises(StopIteration):
        mixture.draw()


def test_or_goes_on_with_the_others_which_share_what_it_had():
    """S3. With 2 : 1 : 1, once c is over a has two thirds."""
    parts = {"a": (endless("a"), 2), "b": (endless("b"), 1), "c": (some("c", 5), 1)}
    drawn = order(Mixture(parts, exhausted="go_on"), 320)
    last = max(place for place, name in enumerate(drawn) if name == "c")
    assert Counter(drawn)["c"] == 5
    assert last in range(16, 21)
    counts = Counter(drawn[last + 4 :])
    assert abs(counts["a"] - 2 * counts["b"]) <= 4


def test_it_ends_when_all_are_over():
    mixture = Mixture({"a": (some("a", 3), 1), "b": (some("b", 7), 1)}, exhausted="go_on")
    assert Counter(order(mixture, 10)) == {"a": 3, "b": 7}
    with pytest.raises(StopIteration):
        mixture.draw()


@pytest.mark.parametrize("weight", [0, -1, float("nan"), float("inf")])
def test_a_weight_that_is_none_is_refused(weight):
    with pytest.raises(ValueError, match=r"finite weights above 0; got \{'b': .*\}, in Mixture\(parts\); leave out"):
        mixed({"a": 1, "b": weight})
    with pytest.raises(ValueError, match="expected at least one source"):
        mixed({})


def test_a_plain_iterator_in_it_runs_and_is_refused_for_resume_by_name():
    mixture = Mixture({"web": (Iterated(iter([Task("1", "?")])), 1), "file": (endless("f"), 1)})
    assert set(order(mixture, 2)) == {"web", "file"}
    with pytest.raises(
        TypeError, match=r"rl\.prompts: .*got a part of it, 'web', a Iterated without state\(\) and restore\(\)"
    ):
        check_resumable(mixture, "rl.prompts")


def test_the_state_of_another_mixture_is_refused():
    """S93."""
    with pytest.raises(ValueError, match=r"expected the sources a, b, whose places these are; got a, in Mixture\.restore"):
        mixed({"a": 1}).restore(mixed({"a": 1, "b": 1}).state())


def test_the_state_of_a_mixture_over_another_set_is_refused_by_the_name_of_its_source():
    """S93."""
    first, second = (Mixture({"web": (Tasks([Task(name, "?")], 0), 1)}) for name in "ab")
    with pytest.raises(ValueError, match=r"^web: expected the set of 1 with the fingerprint"):
        second.restore(first.state())
