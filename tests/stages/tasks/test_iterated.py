from itertools import count

import pytest

from flow import Graph
from flow.saving._declared import check_resumable
from flow.testing import simulate
from stages.tasks.iterated import Iterated, Replayed, ReplayedState


def test_a_plain_iterator_runs_and_is_refused_for_resume():
    found = []
    graph = Graph("numbers")
    numbers = graph.source("numbers", Iterated(number for number in range(5)))
    sink = graph.sink("sink", lambda value, context: found.append(value))
    numbers >> sink
    simulate(graph)
    assert found == [0, 1, 2, 3, 4]
    with pytest.raises(TypeError, match=r"numbers\.numbers: .*got Iterated without state\(\) and restore\(\); .*Replayed"):
        check_resumable(Iterated([1]), "numbers.numbers")


def test_a_replayed_one_is_made_anew_and_passed_over():
    """S95: what was fetched ahead by the iterable itself is fetched again."""
    made = []

    def numbers():
        made.append(1)
        return count()

    source = Replayed(numbers)
    assert [source.draw() for _ in range(4)] == [0, 1, 2, 3]
    other = Replayed(numbers)
    other.restore(source.state())
    assert (other.draw(), other.state().drawn) == (4, 5)
    assert len(made) == 3


@pytest.mark.parametrize(("length", "first", "got"), [(3, 0, "3"), (9, 1, "others")])
def test_a_place_that_the_iterable_does_not_have_is_refused_and_changes_nothing(length, first, got):
    """S93: it is shorter, or it was another value that was drawn last."""
    whole = Replayed(lambda: range(9))
    for _ in range(4):
        whole.draw()
    source = Replayed(lambda: range(first, first + length))
    source.draw()
    with pytest.raises(ValueError, match=rf"expected the 4 values that were drawn, to pass over; got {got}, in Replayed\."):
        source.restore(whole.state())
    assert source.draw() == first + 1


def test_all_of_it_may_have_been_drawn():
    source = Replayed(lambda: range(3))
    for _ in range(3):
        source.draw()
    state = source.state()
    source.restore(ReplayedState(0, ""))
    assert source.draw() == 0
    source.restore(state)
    with pytest.raises(StopIteration):
        source.draw()
