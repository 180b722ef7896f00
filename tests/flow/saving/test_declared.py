import pytest

from flow import FlowError
from flow.saving._declared import check_resumable


class Counting:
    """Draws numbers, and says where it is."""

    def draw(self) -> int:
        return 0

    def state(self) -> int:
        return 0

    def restore(self, state: int) -> None: ...


class Forgetful:
    def draw(self) -> int:
        return 0

    def state(self) -> int:
        return 0


class Stateless(Counting):
    def state(self) -> int:
        raise TypeError("a part of it, 'web', has no state")


@pytest.mark.parametrize("source", [Counting(), [1, 2], (1,), range(5)], ids=lambda source: type(source).__name__)
def test_a_source_that_declares_its_state_and_a_sequence_can_be_resumed(source):
    check_resumable(source, "graph.numbers")


@pytest.mark.parametrize(
    ("source", "got"),
    [
        (iter([1]), "list_iterator without state() and restore()"),
        ((number for number in range(3)), "generator without state() and restore()"),
        ({1, 2}, "set without state() and restore()"),
        (Forgetful(), "Forgetful without restore()"),
        (Stateless(), "a part of it, 'web', has no state"),
    ],
    ids=["iterator", "generator", "set", "half", "part"],
)
def test_one_that_does_not_is_refused_with_what_it_lacks(source, got):
    with pytest.raises(TypeError) as refused:
        check_resumable(source, "grpo.prompts")
    assert isinstance(refused.value, FlowError)
    assert str(refused.value) == (
        f"grpo.prompts: expected a source that declares its state, with state() and restore(state), or a sequence; got {got}; "
        "give it both, draw from a sequence, or from what makes the iterable anew (stages.tasks.iterated.Replayed)"
    )
