import msgspec
import pytest

from stages.records import Task
from stages.tasks.arithmetic import ArithmeticConfig, arithmetic_task
from stages.tasks.generated import Generated, GeneratedState


def test_each_index_is_made_once_when_it_is_drawn():
    made = []

    def make(seed: int, index: int) -> Task:
        made.append((seed, index))
        return arithmetic_task(ArithmeticConfig(), seed, index, "train")

    source = Generated(make, 7)
    assert [source.draw().id for _ in range(3)] == ["train-7-0", "train-7-1", "train-7-2"]
    assert made == [(7, 0), (7, 1), (7, 2)]
    source.restore(msgspec.structs.replace(source.state(), index=1_000_000))
    assert source.draw().id == "train-7-1000000"
    assert made[3:] == [(7, 0), (7, 1_000_000)], "the first one tells whether they are the same tasks"


def test_a_function_that_raises_is_asked_again():
    trouble = [OSError("once")]

    def make(seed: int, index: int) -> Task:
        if trouble:
            raise trouble.pop()
        return Task(str(index), "?")

    source = Generated(make, 0)
    with pytest.raises(OSError, match="once"):
        source.draw()
    assert (source.draw().id, source.state().index) == ("0", 1)


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
    whole = Generated(lambda seed, index: Task("", ""), 0)
    for _ in range(5):
        whole.draw()
    with pytest.raises(ValueError, match=r"at least the 5 tasks that were drawn; got size=4, in Generated\.restore"):
        Generated(lambda seed, index: Task("", ""), 0, size=4).restore(whole.state())


def test_tasks_of_another_maker_or_seed_are_refused():
    """S93, as far as the first of them tells."""
    whole = Generated(lambda seed, index: Task(f"{seed}", "?"), 0)
    whole.draw()
    with pytest.raises(ValueError, match=r"of seed 0 of which 1 were drawn; got those of seed 1, in Generated\.restore"):
        Generated(lambda seed, index: Task("0", "?"), 1).restore(whole.state())
    with pytest.raises(ValueError, match=r"got those of seed 0, the first of which is another, in Generated\.restore"):
        Generated(lambda seed, index: Task("0", "??"), 0).restore(whole.state())
    Generated(lambda seed, index: Task("0", "?"), 0).restore(GeneratedState(0, 0, ""))
