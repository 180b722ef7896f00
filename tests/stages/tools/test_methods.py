import asyncio

import pytest

from stages.tools.limits import ToolLimits
from stages.tools.methods import MethodTools

KEY = (0, 0, 0, 0)


class Notes:
    """What an episode writes down."""

    closed = 0

    def __init__(self):
        self._notes = []

    async def write(self, note: str) -> int:
        """Write a note down.

        Args:
            note: what to keep.
        """
        self._notes.append(note)
        return len(self._notes)

    def read(self) -> str:
        """Read all notes."""
        return ", ".join(self._notes)

    def close(self):
        Notes.closed += 1

    def _secret(self):
        return 1


def test_public_methods_are_the_tools_and_self_is_no_argument():
    specs = MethodTools(Notes).specs
    assert [(spec.name, spec.description) for spec in specs] == [
        ("write", "Write a note down."),
        ("read", "Read all notes."),
    ]
    assert specs[0].parameters["properties"] == {"note": {"type": "string", "description": "what to keep."}}
    assert specs[0].parameters["required"] == ["note"]
    assert specs[1].parameters["properties"] == {}


def test_each_episode_has_a_state_of_its_own_and_closes_it_once():
    before = Notes.closed

    async def run():
        tools = MethodTools(Notes)
        async with tools.open(KEY) as (write, read), tools.open(KEY) as (other, read_other):
            counts = [await write.call({"note": note}, (0,)) for note in ("a", "b")]
            counts.append(await other.call({"note": "c"}, (0,)))
            return counts, (await read.call({}, (0,))).text, (await read_other.call({}, (0,))).text

    counts, mine, others = asyncio.run(run())
    assert [answer.text for answer in counts] == ["1", "2", "1"]
    assert (mine, others) == ("a, b", "c")
    assert Notes.closed == before + 2


def test_arguments_that_do_not_fit_are_not_executed():
    """S52."""

    async def run():
        async with MethodTools(Notes).open(KEY) as (write, read):
            return await write.call({}, (0,)), await read.call({}, (0,))

    refused, notes = asyncio.run(run())
    assert (refused.outcome, refused.text) == ("invalid", "error: note: Field required")
    assert notes.text == ""


def test_limits_hold_for_all_methods_or_for_one():
    class Slow:
        async def wait(self) -> None:
            """Wait for ever."""
            await asyncio.get_running_loop().create_future()

        async def shout(self) -> str:
            """Shout."""
            return "A" * 99

        async def close(self) -> None:
            """Closed by a coroutine function."""

    async def run():
        tools = MethodTools(Slow, limits_of={"wait": ToolLimits(deadline_s=0.01)}, max_output_chars=40)
        async with tools.open(KEY) as (wait, shout):
            return (await wait.call({}, (0,))).text, (await shout.call({}, (0,))).text

    assert asyncio.run(run()) == ("error: no answer within 0.01 s", "A" * 19 + " [cut: 99 characters]")


def test_a_class_no_model_could_use_is_refused():
    class Empty:
        """Nothing."""

    with pytest.raises(TypeError, match=r"expected a class with public methods; got none, in MethodTools\(Empty\)"):
        MethodTools(Empty)
    with pytest.raises(TypeError, match=r"expected a class; got .*; name the class it makes with of="):
        MethodTools(lambda: Notes())
    with pytest.raises(ValueError, match=r"expected names among write, read; got wipe, in MethodTools\(limits_of\)"):
        MethodTools(lambda: Notes(), of=Notes, limits_of={"wipe": ToolLimits()})
