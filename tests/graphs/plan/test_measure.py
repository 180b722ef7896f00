"""A tiny training is measured: what is noted, and that the run comes out the same on paper in all that has no clock."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from typing import Any

import anyio
import jax
import numpy as np
import pytest
from flax import nnx

from flow.trace import read_trace
from graphs.calculator import calculator
from graphs.plan.measure import measure
from graphs.plan.permits import Holds, noting
from graphs.plan.played import predicted
from graphs.plan.steps import Steps, host_seconds, step_seconds
from stages.envs.environment import Reply
from stages.envs.housed import on_loop
from stages.records import Message, Task
from stages.tools.context import tool_context, tool_context_with


def by_letters(episode: Any) -> float:
    """A reward of which an untrained policy gets now more and now less."""
    return float(episode.ids[episode.mask].sum() % 7)


@pytest.mark.slow
def test_a_measured_run_has_the_same_micro_batches_on_paper(config, tmp_path):
    base = config()
    made = calculator(base).parts
    assert made is not None
    parts = replace(made, reward=by_letters)
    parts.load()
    before = jax.device_get(nnx.state(parts.model, nnx.Param))
    wanted = base.rl.model_copy(update={"steps": 2, "seed": 0})
    said: list[str] = []
    found, times = asyncio.run(
        measure(wanted, parts, tmp_path / "probe.pftrace", (2,), lambda done, total, what: said.append(what))
    )
    jax.tree.map(np.testing.assert_array_equal, before, jax.device_get(nnx.state(parts.model, nnx.Param)))
    assert len(found.groups) == len(found.batches) == 2 * wanted.groups_per_step
    assert len(found.moments) == 3
    assert set(times.trainer) == {2, 4}
    assert [list(each.gradient_s) for each in times.trainer.values()] == [[(2, 64)], [(4, 64)]]
    assert times.engine.decode_s.keys() == {8, 16}
    assert max(times.engine.prefill_s) == base.engine.prefill_rows
    assert min(*times.engine.decode_s.values(), *times.engine.prefill_s.values(), times.turn_s) > 0
    assert times.engine.demand >= 1.0
    assert len(said) == 5
    trace = read_trace(tmp_path / "probe.pftrace")
    gradients = [
        spans
        for number, spans in trace.spans.items()
        if trace.tracks[number].name == "trainer/0"
        for name in spans.names
        if name == "gradient"
    ]
    assert predicted(wanted, parts, times).microbatches == len(gradients) / wanted.steps


def test_steps_are_read_with_what_the_host_does_between_them():
    def steps(rows: int, began_ms: int, ended_ms: int, count: int, busy_ms: float) -> Steps:
        return Steps("decode", rows, began_ms * 10**6, ended_ms * 10**6, count, busy_ms / 1e3)

    # Four steps of 2 ms in a slice of 11 ms: 1 ms between any two. The next slice begins 1 ms later.
    found = [steps(8, 0, 11, 4, 8.0), steps(8, 12, 23, 4, 8.0), steps(16, 500, 504, 1, 4.0)]
    assert host_seconds(found) == pytest.approx(1e-3)
    assert step_seconds(found) == pytest.approx({("decode", 8): 3e-3, ("decode", 16): 5e-3})


def test_what_a_step_of_an_environment_holds_is_noted_apart_from_its_wait():
    holds: Holds = {}

    class Env:
        async def reset(self, task: Task, key: tuple[int, int, int, int]) -> Any:
            return None

        async def step(self, message: Message) -> Reply:
            async with tool_context().permit({"desk": 2}):
                await anyio.sleep(0.02)
            return Reply()

    @contextlib.asynccontextmanager
    async def slow(needs: Mapping[str, int]) -> AsyncGenerator[None]:
        await anyio.sleep(0.01)
        yield

    async def main() -> None:
        env: Any = await noting(on_loop(lambda task: Env()), holds)(Task("a", "a"))  # type: ignore
        await env.reset(Task("a", "a"), (0, 3, 1, 0))
        with tool_context_with(permit=slow):
            await env.step(Message("assistant", ""))

    asyncio.run(main())
    ((key, (hold,)),) = holds.items()
    assert key == (3, 1, 0)
    assert dict(hold.needs) == {"desk": 2}
    assert hold.granted_s - hold.asked_s >= 0.01
    assert hold.freed_s - hold.granted_s >= 0.02
