import pytest

from stages.records import Task
from stages.tasks.arithmetic import ArithmeticConfig, arithmetic_task
from stages.tasks.generated import Generated


def test_each_index_is_made_once_when_it_is_drawn():
    made = []

    def make(seed: int, index: int) -> Task:
        made.append((seed, index))
        return arithmetic_task(ArithmeticConfig(), seed, index, "train")

    source = Generated(make, 7)
    assert [source.draw().id for _ in range(3)] == ["train-7-0", "train-7-1", "train-7-2"]
    source.restore(1_000_000)
    assert source.draw().id == "train-7-1000000"
    assert made == [(7, 0), (7, 1), (7, 2), (7, 1_000_000)]


def test_a_function_that_raises_is_asked_again():
    trouble = [OSError("once")]

    def make(seed: int, index: int) -> Task:
        if trouble:
            raise trouble.pop()
        return Task(str(index), "?")

    source = Generated(make, 0)
    with pytest.raises(OSError, match="once"):
        source.draw()
    assert (source.draw().id, source.state()) == ("0", 1)


def test_it_ends_after_its_size():
    """S3."""
    source = Generated(lambda seed, index: Task(str(index), "?"), 0, size=2)
    assert [source.draw().id, source.draw().id] == ["0", "1"]
    with pytest.raises(StopIteration):
        source.draw()


def test_sizes_and_places_that_are_none_are_refused():
    """S93."""
    with pytest.raises(ValueError, match="at least 1 task, or None for ever; got size=0"):
        Generated(lambda seed, index: Task("", ""), 0, size=0)
    with pytest.raises(ValueError, match=r"an index from 0 to 4; got 5, in Generated\.restore"):
        Generated(lambda seed, index: Task("", ""), 0, size=4).restore(5)
