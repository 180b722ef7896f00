"""The engine of this project as one of the systems: all requests at once, over so many slots. Arguments: GGUF file, slots."""

import asyncio
import sys
import time
from pathlib import Path

import numpy as np
from flax import nnx
from script import Measured, answer
from workload import CONTEXT, Request, read, warm_up

sys.path.insert(0, str(Path(__file__).parents[3]))
from stages.models.gguf import load_gguf
from stages.policy import SampleRequest
from stages.records import Weights
from stages.rollout.config import EngineConfig
from stages.rollout.engine import Engine


class Rounds:
    """Answers the workload again and again, each time from empty caches."""

    def __init__(self, engine: Engine, weights: Weights):
        self._engine, self._weights, self._num = engine, weights, 0

    async def run(self, requests: list[Request]) -> Measured:
        self._num += 1
        # The same weights under a new version: nothing that an earlier round has cached may serve this one.
        await self._engine.load(self._weights, self._num)
        before = self._engine.statistics()
        begun, worked = time.perf_counter(), time.process_time()
        replies = await asyncio.gather(*(self._reply(at, request) for at, request in enumerate(requests)))
        seconds, worked, after = time.perf_counter() - begun, time.process_time() - worked, self._engine.statistics()
        steps, read_in = after.steps - before.steps, after.prefilled_tokens - before.prefilled_tokens
        expected = sum(len(request.prompt) - 1 for request in requests)
        assert read_in >= 0.95 * expected, f"prompts have {expected} tokens, only {read_in} were read in"
        occupancy = (after.busy_slot_steps - before.busy_slot_steps) / (steps * self._engine.config.slots)
        spent = {"prefill_s": after.prefill_s - before.prefill_s, "decode_s": after.decode_s - before.decode_s}
        return Measured(seconds, replies, worked, {**spent, "decode_steps": steps, "occupancy": occupancy})

    async def _reply(self, at: int, request: Request) -> list[int]:
        session = f"{self._num}-{at}"
        sample = await self._engine.sample(
            SampleRequest(np.array(request.prompt, np.int32), request.num_tokens, (), 0.0, (0, at, 0, 0, 0), session)
        )
        self._engine.release(session)
        return sample.ids.tolist()


def main(gguf: str, slots: str) -> None:
    """Open the engine, warm up, answer."""
    model = load_gguf(gguf)
    config = EngineConfig(slots=int(slots), context_length=CONTEXT)
    with asyncio.Runner() as runner:
        engine = Engine(model, config)
        runner.run(engine.__aenter__())
        rounds = Rounds(engine, Weights(nnx.state(model, nnx.Param)))
        runner.run(rounds.run(warm_up(read())))
        answer(lambda: runner.run(rounds.run(read())))
        runner.run(engine.__aexit__())


if __name__ == "__main__":
    main(*sys.argv[1:])
