"""Episodes of four turns with a tool between them: caches that are kept and prompts that are read in once, against neither.

Each group of eight has a prompt of 200 tokens; each turn ends after a heavy-tailed number of tokens, and the tool answers after
a short while with 16 more. Both sides are the same engine with the same episodes. Without, each turn is a session of its own
that begins with a token nobody else begins with, so there is nothing to keep or to share, and nothing else changes.

Occupancy is decoding slots over decode steps times slots, of a longer run with its end, where slots run out of work.

The model is SmolLM2-135M cut to a fifth, 6 of 30 layers and a fifth of the vocabulary, so that reading in, decoding and logits
cost what they do there in proportion. Weights are random: no value changes a time.
"""

import asyncio
import json
import time
from typing import Any

import numpy as np
from flax import nnx

from stages.models.config import ModelConfig
from stages.models.transformer import Transformer
from stages.policy import SampleRequest
from stages.rollout.config import EngineConfig
from stages.rollout.engine import Engine

MODEL = ModelConfig(
    vocab_size=9830, width=576, num_layers=6, num_heads=9, num_kv_heads=3, head_size=64, mlp_width=1536, context_length=1024
)
CONFIG = EngineConfig(slots=16, kept=32, context_length=640)
AT_ONCE = 48
"""Conversations: as many as there are caches."""
TURNS, GROUP, PROMPT, ANSWER = 4, 8, 200, 16
LEAST, MOST, TAIL = 4, 96, 1.3
"""Tokens of a turn: from a Pareto distribution."""
DELAY_S = 0.05
"""Mean of the tool's."""
COMPARED, LONG = 48, 256
"""Episodes."""


class Script:
    """What is decided of an episode before it runs: a function of its number."""

    def __init__(self, number: int):
        group, own = np.random.default_rng((0, number // GROUP)), np.random.default_rng((1, number))
        self.number = number
        self.prompt = group.integers(0, MODEL.vocab_size, PROMPT).astype(np.int32)
        self.answers = own.integers(0, MODEL.vocab_size, (TURNS, ANSWER)).astype(np.int32)
        self.lengths = np.minimum(LEAST * (1 + own.pareto(TAIL, TURNS)), MOST).astype(int)
        self.delays_s = own.exponential(DELAY_S, TURNS)


async def converse(engine: Engine, script: Script, fresh: bool) -> int:
    """Hold a conversation; gives the number of tokens sampled."""
    ids, sampled = script.prompt, 0
    for turn in range(TURNS):
        context, session = ids, f"{script.number}"
        if fresh:
            context, session = ids.copy(), f"{script.number}.{turn}"
            context[0] = script.number * TURNS + turn
        key = (0, script.number // GROUP, script.number % GROUP, 0, turn)
        sample = await engine.sample(SampleRequest(context, int(script.lengths[turn]), (), 1.0, key, session))
        sampled += len(sample.ids)
        if fresh or turn + 1 == TURNS:
            engine.release(session)
        await asyncio.sleep(script.delays_s[turn])
        ids = np.concatenate([ids, sample.ids, script.answers[turn]])
    return sampled


async def run(model: Transformer, num: int, fresh: bool) -> dict[str, Any]:
    """Hold so many conversations in an engine of their own."""
    async with Engine(model, CONFIG) as engine:
        places = asyncio.Semaphore(AT_ONCE)

        async def one(number: int) -> int:
            async with places:
                return await converse(engine, Script(number), fresh)

        begun = time.perf_counter()
        sampled = sum(await asyncio.gather(*map(one, range(num))))
        seconds = time.perf_counter() - begun
        counted = engine.statistics()
    assert sampled == sum(int(Script(number).lengths.sum()) for number in range(num))
    return {
        "episodes_per_minute": 60 * num / seconds,
        "seconds": seconds,
        "occupancy": counted.busy_slot_steps / counted.steps / CONFIG.slots,
        "sampled_tokens": counted.sampled_tokens,
        "prefilled_tokens": counted.prefilled_tokens,
        "kept_tokens": counted.kept_tokens,
        "shared_tokens": counted.shared_tokens,
        "evictions": counted.evictions,
        "steps": counted.steps,
    }


def main() -> None:
    """Prints a line for each run, then the result as JSON."""
    model = Transformer(MODEL, nnx.Rngs(0))
    detail = {}
    runs = {"without": (COMPARED, True), "kept": (COMPARED, False), "long": (LONG, False)}
    for name, (num, fresh) in runs.items():
        detail[name] = found = asyncio.run(run(model, num, fresh))
        print(
            f"{name:8}{num:4} episodes: {found['episodes_per_minute']:.1f} a minute, {found['prefilled_tokens']} tokens "
            f"read in, {found['kept_tokens']} kept, {found['shared_tokens']} shared, occupancy {found['occupancy']:.2f}",
            flush=True,
        )
    ratio = detail["kept"]["episodes_per_minute"] / detail["without"]["episodes_per_minute"]
    result = {
        "bench": "multi_turn",
        "ratios": {"kept_over_without": ratio, "occupancy": detail["long"]["occupancy"]},
        "targets": {"kept_over_without": 2.5, "occupancy": 0.9},
        "detail": detail,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
