"""How many whole runs a second can be simulated: six stages, groups of 4, feedback, 10 % faults, 64 groups, a new seed each.

Each run is declared, proven, run to its end in virtual time on a loop of its own with 2 % of the due steps killed, and checked
for leftovers. Target: at least 200 a second. Seconds of processor time, since one run is one thread that never waits.
"""

import asyncio
import json
import statistics
import time

from flow import Collect, Context, Drop, Freshness, Gathered, Graph, Retry
from flow.testing import Faults, faulty, simulate
from flow.testing._chance import chance, exponential

GROUPS = 64
PER_STEP = 8
TARGET = 200
SEEDS = 200
ROUNDS = 5


async def play(task: int, context: Context) -> int:
    await asyncio.sleep(exponential(chance(*context.path, context.retry), 1.0))
    return task


async def score(group: Gathered[int], context: Context) -> int:
    await asyncio.sleep(0.1)
    return sum(group.members)


class Trainer:
    """Counts steps."""

    def __init__(self) -> None:
        self.seen = self.steps = 0

    def add(self, group: int, context: Context) -> None:
        self.seen += 1

    async def finish(self, context: Context) -> int:
        await asyncio.sleep(0.5)
        self.steps += 1
        return self.steps


def training(trainer: Trainer) -> Graph:
    """The graph that is measured."""
    graph = Graph("training")
    weights = graph.latest("weights", int)
    tasks = graph.source("tasks", range(10 * GROUPS))
    members = graph.repeat("members", tasks, n=4)
    plays = graph.stage("plays", play, workers=16, reads=weights, on_error=Retry(2, then=Drop()))
    groups = graph.group("groups", plays, missing=Retry(1, then="drop"))
    scores = graph.stage("scores", score, workers=2)
    steps = graph.sink("steps", trainer, collect=Collect(PER_STEP, steps=GROUPS // PER_STEP))
    tasks >> members >> plays >> groups >> scores >> steps
    graph.feedback(steps, weights, initial=0, freshness=Freshness(max_lag=1))
    return graph


def run(seed: int) -> int:
    """Simulate one seed."""
    trainer = Trainer()
    faults = Faults(0.1, ("raise", "delay", "straggle", "cancel"), seed)
    done = simulate(faulty(training(trainer), {"plays": faults}), seed, kill=0.02)
    assert trainer.seen == GROUPS
    return done.kills


if __name__ == "__main__":
    rates = []
    for number in range(ROUNDS):
        began = time.process_time()
        kills = sum(run(seed) for seed in range(number * SEEDS, number * SEEDS + SEEDS))
        rates.append(SEEDS / (time.process_time() - began))
        assert kills > SEEDS
    rate = statistics.median(rates)
    print(f"{rate:.0f} seeds a second, from {min(rates):.0f} to {max(rates):.0f} in {ROUNDS} rounds of {SEEDS}")
    detail = {"seeds_per_s": round(rate), "rounds": [round(r) for r in rates], "groups": GROUPS}
    print(json.dumps({"bench": "simulation_rate", "ratio": round(rate / TARGET, 2), "target": 1.0, "detail": detail}))
