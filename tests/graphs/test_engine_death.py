"""The engine dies while a whole graph samples from it."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from flow import Run, StageFailed
from graphs.calculator import calculator
from graphs.rl import rl
from stages.policy import Sample, SampleRequest
from stages.records import Weights
from stages.rollout.config import EngineConfig
from stages.rollout.engine import THREAD, Engine


class DiesOnCall5:
    """An engine whose thread meets an error at the fifth request, after four that it serves."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.asked: list[str] = []
        self.released: list[str] = []

    @property
    def config(self) -> EngineConfig:
        return self._engine.config

    @property
    def context_length(self) -> int:
        return self._engine.context_length

    async def sample(self, request: SampleRequest) -> Sample:
        self.asked.append(request.session)
        if len(self.asked) == 5:
            self._engine._mailbox.post(lose_device)
        return await self._engine.sample(request)

    def release(self, session: str) -> None:
        self.released.append(session)
        self._engine.release(session)

    def abort(self, session: str) -> None:
        self._engine.abort(session)

    async def load(self, weights: Weights, version: int) -> None:
        await self._engine.load(weights, version)


def lose_device() -> None:
    raise OSError("device lost")


@pytest.mark.slow
def test_a_graph_whose_engine_dies_ends_with_its_error_and_everything_released(config: Callable[..., Any]) -> None:
    """S13: all workers stop, each session is released once, each item is accounted for, no task and no thread is left."""
    settings = config()
    parts = calculator(settings).parts
    assert parts is not None
    parts.load()
    engine = DiesOnCall5(parts.engine)
    run = Run(rl(settings.rl, replace(parts, engine=engine)).build())

    async def main() -> int:
        async with parts.engine:
            with pytest.raises(StageFailed, match=r"got one that has ended: OSError\('device lost'\)"):
                await asyncio.wait_for(run.finish(), 60)
        return len(asyncio.all_tasks())

    assert asyncio.run(main()) == 1
    assert THREAD not in {thread.name for thread in threading.enumerate()}
    assert len(engine.asked) >= 5
    assert len(engine.released) == len(set(engine.released))
    assert set(engine.asked) <= set(engine.released), "an episode may end before it asks"
    assert run.summary().status == "failed"
    assert "every item accounted for" in str(run.summary())
