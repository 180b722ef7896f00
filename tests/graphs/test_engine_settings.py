"""Settings of the engine reach it from the command line: what it reports of itself is what they say."""

import asyncio
from typing import Any

import numpy as np
import pytest

from graphs.commands.command_line import read_program
from stages.policy import SampleRequest
from stages.rollout.config import EngineConfig

TINY = ("--model.width", "16", "--model.num-layers", "1", "--model.num-heads", "2", "--model.num-kv-heads", "1")
NOT_THE_DEFAULT = {
    "slots": 2, "kept": 1, "eviction": "never", "dtype": "bfloat16", "context_length": 32, "prefill_rows": 2,
    "prefill_chunk": 8, "prefill_wait": 0, "swap": "episode", "after_swap": "keep",
}  # fmt: skip


def read(*arguments: str) -> Any:
    program, _ = read_program("check", ["calculator", *TINY, *arguments])
    assert program.parts is not None
    return program.parts


def test_every_setting_of_the_engine_is_the_one_that_was_typed() -> None:
    """S83."""
    assert set(NOT_THE_DEFAULT) == set(EngineConfig.model_fields)
    typed = [part for name, value in NOT_THE_DEFAULT.items() for part in (f"--engine.{name.replace('_', '-')}", str(value))]
    assert read(*typed).engine.config == EngineConfig.model_validate(NOT_THE_DEFAULT)


@pytest.mark.slow
def test_an_engine_reports_what_its_settings_say() -> None:
    """S83: two slots are busy where five ask, one cache is kept, and the weights take two bytes each."""
    parts = read("--engine.slots", "2", "--engine.kept", "1", "--engine.prefill-rows", "2", "--engine.dtype", "bfloat16")

    async def ask() -> tuple[int, int, int]:
        parts.load()
        async with parts.engine as engine:
            await parts.load_engine()
            asked = [engine.sample(wanted(number)) for number in range(5)]
            tasks = [asyncio.ensure_future(one) for one in asked]
            seen = []
            while not all(task.done() for task in tasks):
                seen.append(engine.statistics())
                await asyncio.sleep(0)
            await asyncio.gather(*tasks)
            return max(one.slots_busy for one in seen), engine.statistics().evictions, engine.statistics().loaded_bytes

    busy, evictions, loaded = asyncio.run(ask())
    parameters = 16 * parts.model.config.vocab_size + 2 * 16 * 32 + 2 * 16 * 16 + 3 * 16 * 384 + 3 * 16
    assert (busy, evictions, loaded) == (2, 2, 2 * parameters)


def wanted(number: int) -> SampleRequest:
    return SampleRequest(np.array([1, 2, 3], np.int32), 8, (), 1.0, (0, 0, number, 0, 0), f"{number}")
