"""Episodes per minute with 32 in flight against one in flight, where every tool call takes 500 ms.

A policy that was just taught to call the calculator, the real engine, agent, environment and graph. The delay is constant, so
the bound is 32 where the policy's own time does not matter. Target: at least 15.
"""

import asyncio
import json
import statistics

from flow import Run, Summary
from graphs.calculator import CalculatorConfig, calculator
from graphs.evaluate import evaluate
from graphs.parts import Parts
from graphs.sft import sft
from stages.scores import Scores
from stages.tasks.arithmetic import demonstrations
from stages.tools.delay import DelayConfig

TARGET = 15.0
DELAY = DelayConfig(scale_s=0.5, shape=float("inf"), max_s=0.5)
REPEATS = 3


async def episodes_per_minute(config: CalculatorConfig, parts: Parts, in_flight: int, num_tasks: int) -> float:
    """Run held-out episodes at one concurrency; counts only those that called the tool, as nearly all do."""
    settings = config.evaluate.model_copy(update={"num_tasks": num_tasks, "max_concurrency": in_flight})
    graph = evaluate(settings, parts, Scores(num_tasks)).replace("tasks", list(parts.heldout[:num_tasks]))
    waited: list[float] = []

    class Watch:
        def committed(self, node: str, values: object) -> None:
            if node == "episodes":
                waited.extend(turn.tool_s for episode in values for turn in episode.turns if turn.tool_s and turn.tool_s > 0.4)  # type: ignore[attr-defined]

        def reported(self, node: str, row: object) -> None: ...

    summary: Summary = await Run(graph.build(), watchers=(Watch(),)).finish()
    return 60 * len(waited) / summary.seconds


async def main() -> dict[str, object]:
    """Teach, then measure in turns, so that noise of the machine meets both sides."""
    config = CalculatorConfig(delay=DELAY)
    program = calculator(config)
    parts = program.parts
    assert parts is not None
    parts.load()
    taught = demonstrations(config.tasks, 0, 1000, 1.0)
    await Run(sft(config.warm_start, parts, taught).build()).finish()
    async with parts.engine:
        await parts.load_engine()
        pairs = [
            (await episodes_per_minute(config, parts, 1, 8), await episodes_per_minute(config, parts, 32, 256))
            for _ in range(REPEATS)
        ]
    ratios = [many / one for one, many in pairs]
    return {
        "bench": "concurrency",
        "ratios": {"episodes_per_minute_32_to_1": statistics.median(ratios)},
        "targets": {"episodes_per_minute_32_to_1": TARGET},
        "detail": {"ratios": ratios, "per_minute": pairs, "tool_delay_s": DELAY.scale_s},
    }


if __name__ == "__main__":
    result = asyncio.run(main())
    print(f"32 in flight give {result['ratios']['episodes_per_minute_32_to_1']:.1f} times the episodes of one")  # type: ignore[index]
    print(json.dumps(result))
