"""GRPO over a graph of your own making: the calculator's parts, a smaller policy, and one stage swapped.

``--steps 30`` learns something; the default only shows that everything turns.
"""

import argparse
import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from flow import Context, Gathered, Run
from graphs.calculator import CalculatorConfig, calculator
from graphs.rl import rl
from stages.records import Episode, Group
from stages.rewards.answers import exact_answer
from stages.rewards.stage import Rewards


class ShortAnswers:
    """A reward stage of one's own: right answers earn 1, and every sampled token costs a little."""

    def __init__(self, price: float) -> None:
        self._rewards = Rewards({"answer": (exact_answer, 1.0), "tokens": (lambda e: -float(e.num_sampled), price)})

    async def __call__(self, group: Gathered[Episode], context: Context) -> Group:
        return await self._rewards(group, context)


class Rows:
    """Keeps the rows that the trainer reports."""

    def __init__(self) -> None:
        self.steps: list[Mapping[str, Any]] = []

    def committed(self, node: str, values: Sequence[Any]) -> None: ...

    def reported(self, node: str, row: Mapping[str, Any]) -> None:
        self.steps.append(row)
        print(f"step {row['step']}: reward {row['reward_mean']:.3f}, {row['sampled_tokens']} tokens, lag {row['lag_max']}")


async def train(steps: int) -> Rows:
    config = CalculatorConfig()
    settings = config.rl.model_copy(update={"steps": steps, "groups_per_step": 4, "group_size": 4, "max_lag": 1})
    parts = calculator(config).parts
    assert parts is not None
    parts.load()
    graph = rl(settings, parts).replace("rewards", ShortAnswers(price=0.001)).with_("rewards", workers=4)
    print(graph.draw())
    rows = Rows()
    async with parts.engine:
        await Run(graph.build(), watchers=(rows,)).finish()
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=3)
    done = asyncio.run(train(parser.parse_args().steps))
    print(f"{len(done.steps)} steps, no lag above 1: {all(row['lag_max'] <= 1 for row in done.steps)}")
