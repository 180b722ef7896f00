"""What a stage in a process asks of the run while it works: identity, the cell, permits, rows, spans."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import process_stages
import pytest
from process_stages import Job

from flow import Context
from flow._context import Desk, Versioned
from flow._core.item import Item
from flow._errors import WorkerDied
from flow._processes.crew import ProcessCrew
from flow._spans import listening
from flow.testing import context


class Heard:
    """A listener that keeps what another process told: what, strand, name, time."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Any, str, float]] = []
        self.args: list[Any] = []
        self.three = asyncio.Event()  # at the third

    def strand(self) -> str:
        return "here"

    def opens(self, strand, at_s, opens):
        self.told.append(("opens", strand, opens.name, at_s))
        self.args.append(opens.args)
        if len(self.told) == 3:
            self.three.set()
        return strand, opens.name

    def closes(self, opened, at_s):
        self.told.append(("closes", *opened, at_s))


@pytest.fixture(scope="module")
def reading(hire: Callable[..., ProcessCrew]) -> ProcessCrew:
    """One process of a stage that reads a cell of lists."""
    return hire(process_stages.act, 1, list[int])


def asking(**ways: Any) -> Context:
    """A context whose ways into the run are these."""
    desk = Desk("node", **{"read": unexpected, "permit": unexpected, "span": unexpected, "report": unexpected, **ways})
    return Context(desk, Item(None, (3, 1), 7, 1))


def unexpected(*_: Any) -> Any:
    raise AssertionError("nobody was to ask for this")


def test_a_stage_sees_the_same_identity_and_the_time_that_is_left(runner, acting):
    """S7."""

    async def main() -> str:
        deadline_s = asyncio.get_running_loop().time() + 40.2
        seen = context(
            node="node", path=(4, 2), birth=4, member=2, retry=1, attempt=3, version=9, lag=2, deadline_s=deadline_s
        )  # fmt: skip
        return (await acting.call(Job("context"), seen)).text

    assert runner.run(main()) == "node (4, 2) 1 4 2 9 2 40"
    assert runner.run(acting.call(Job("context"), context(node="node"))).text == "node (0,) 0 0 0 None None 0"


def test_a_read_gives_the_newest_value_and_fetches_each_version_once(runner, reading):
    """F1."""
    cell = Versioned[Any](None, 0)
    read = asking(read=lambda: cell)
    assert runner.run(reading.call(Job("read"), read)).text == "None 0 True"
    for version in (1, 5):
        cell = Versioned([version], version)
        for _ in range(2):  # the same object at the second read: it was not sent again
            assert runner.run(reading.call(Job("read"), read)).text == f"[{version}] {version} True"
    assert runner.run(reading.call(Job("read on thread"), read)).text == "5"


def test_a_read_without_a_cell_raises_in_the_stage_what_it_raises_here(runner, acting):
    def nothing() -> Versioned[Any]:
        raise LookupError("stage 'node' reads a cell, but declares none")

    with pytest.raises(LookupError, match="reads a cell, but declares none") as raised:
        runner.run(acting.call(Job("read"), asking(read=nothing)))
    assert "process_stages.py" in raised.value.__notes__[-1]
    assert runner.run(acting.call(Job("plain", "after"), context())).text == "after"


class Pool:
    """Keeps book of permits."""

    def __init__(self, units: int) -> None:
        self.free, self.log = units, list[str]()
        self.change = asyncio.Condition()

    @asynccontextmanager
    async def permit(self, needs: Mapping[str, int]) -> AsyncGenerator[None]:
        ((pool, units),) = needs.items()
        async with self.change:
            await self.change.wait_for(lambda: self.free >= units)
            self.free -= units
        self.log.append(f"{pool} {units}")
        try:
            yield
        finally:
            self.free += units
            async with self.change:
                self.change.notify_all()


def test_a_permit_is_held_here_while_the_stage_holds_it_there(runner, acting):
    """S3: two attempts want two of three units each, so the second waits for the first."""

    async def main() -> tuple[Pool, list[str]]:
        pool = Pool(3)
        calls = [acting.call(Job("permit", size=0.05), asking(permit=pool.permit)) for _ in range(2)]
        loop = asyncio.get_running_loop()
        began = loop.time()
        texts = [answer.text for answer in await asyncio.gather(*calls)]
        assert loop.time() - began >= 0.1
        await asyncio.sleep(0)
        return pool, texts

    pool, texts = runner.run(main())
    assert (pool.free, pool.log, texts) == (3, ["sandbox 2"] * 2, ["had it"] * 2)


@pytest.mark.parametrize("end", ["crash", "cancel", "cancel while waiting"])
def test_a_permit_comes_back_whatever_ends_the_attempt(runner, acting, end):
    """S13, S32."""

    async def main() -> int:
        pool = Pool(1 if end == "cancel while waiting" else 2)
        call = asyncio.create_task(acting.call(Job("permit", size=30), asking(permit=pool.permit)))
        await asyncio.sleep(0.05)
        assert pool.free == (1 if end == "cancel while waiting" else 0)
        if end == "crash":
            (place,) = (place for place in acting._places if place not in acting._free)
            place._child._process.kill()
            with pytest.raises(WorkerDied):
                await call
        else:
            call.cancel()
            await asyncio.wait([call])
        await asyncio.sleep(0)
        return pool.free

    assert runner.run(main()) == (1 if end == "cancel while waiting" else 2)


def test_a_permit_that_is_refused_raises_in_the_stage(runner, acting):
    @asynccontextmanager
    async def refuse(needs: Mapping[str, int]) -> AsyncGenerator[None]:
        ((pool, units),) = needs.items()
        raise LookupError(f"{units} of pool '{pool}', which has 1")
        yield

    with pytest.raises(LookupError, match="2 of pool 'sandbox', which has 1"):
        runner.run(acting.call(Job("permit"), asking(permit=refuse)))


def test_rows_arrive_as_they_were_and_a_fault_of_who_takes_them_is_the_calls(runner, acting):
    rows: list[Any] = []
    runner.run(acting.call(Job("rows", "text"), context(report=rows.append)))
    assert rows == [{"loss": 0.5, "name": "text", "nothing": None}]
    with pytest.raises(AssertionError, match="nobody was to ask for this"):
        runner.run(acting.call(Job("rows", "text"), asking()))
    assert runner.run(acting.call(Job("plain", "after"), context())).text == "after"


def test_spans_are_told_in_order_with_their_times_and_apart_by_task(runner, reading):
    """S7."""
    heard = Heard()

    async def main() -> tuple[float, float]:
        loop = asyncio.get_running_loop()
        began = loop.time()
        with listening(heard):
            await reading.call(Job("span", size=3), context(node="node"))
        return began, loop.time()

    began, ended = runner.run(main())
    whats, strands, names, times = zip(*heard.told, strict=True)
    assert list(zip(whats, names, strict=True))[:3] == [("opens", "outer"), ("opens", "inner 0"), ("opens", "inner 1")]
    assert (whats[-1], names[-1], heard.args[0], len(names)) == ("closes", "outer", {"size": 3}, 6)
    assert [began, *times, ended] == sorted([began, *times, ended])
    assert strands[0] == strands[-1] == "here"
    assert len(set(strands)) == 3


def test_spans_that_a_lost_process_left_open_are_closed(runner, reading):
    heard = Heard()

    async def main() -> None:
        with listening(heard):
            call = asyncio.create_task(reading.call(Job("span", size=3), context(node="node")))
        await asyncio.wait_for(heard.three.wait(), 5)
        reading._places[0]._child._process.kill()
        with pytest.raises(WorkerDied):
            await call

    runner.run(main())
    begun = [name for what, _, name, _ in heard.told if what == "opens"]
    assert sorted(begun) == sorted(name for what, _, name, _ in heard.told if what == "closes")
    assert heard.told[-1][2] == "outer"


def test_a_span_of_which_nobody_hears_is_none(runner, reading):
    """It would cost the stage, for nothing; the same process may be heard of in its next call."""

    async def main() -> list[str]:
        silent = await reading.call(Job("heard"), context())
        with listening(Heard()):
            return [silent.text, (await reading.call(Job("heard"), context())).text]

    assert runner.run(main()) == ["False False", "True True"]
