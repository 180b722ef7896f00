"""What each choice of freshness costs: throughput, waiting for stragglers, lag, and who gets left out.

The engine in virtual time: 8 groups of 4 a step, 64 places for members that take a second on average in each of three
distributions, and a sink that needs 0.8 s a step. What the engine does not offer is computed by the event model, and marked:
the order of arrival at ``max_lag=0``. ``docs/freshness.md`` shows the table.
"""

import asyncio
import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lines.engine import Trainer, graph_of
from lines.shapes import KINDS

from flow import Run
from flow.testing import run_virtual
from graphs.bench.model.event_model import Model
from graphs.bench.model.spec import Drawn, Line, Work

STEPS, SEEDS = 100, 3
MEANS = {"play": 1.0, "add": 0.05, "finish": 0.4, "load": 0.1}
LAGS = (0, 1, 2, 4)
LINE = Line("costs", 8, STEPS, members=(Work("play", 64, 128, reads=True),), size=4, max_lag=1)


@dataclass
class Arrivals:
    """A watcher that notes when each group was ready for the sink."""

    at: dict[int, float] = field(default_factory=dict)

    def committed(self, node: str, values: Sequence[Any]) -> None:
        """Groups left the barrier."""
        if node == "barrier":
            self.at |= {group.birth: asyncio.get_running_loop().time() for group in values}

    def reported(self, node: str, row: object) -> None: ...


@dataclass(frozen=True)
class Cost:
    """What one choice comes to.

    Attributes:
        steps_per_s: throughput.
        straggler: share of the time that the sink stood still although a group was ready.
        lag: mean versions between dispatch and training.
        slow: share of the trained groups that take longer than the median group; 0.5 is no bias.
        given_up: groups that were dropped for age, a step.
    """

    steps_per_s: float
    straggler: float
    lag: float
    slow: float
    given_up: float


def engine(line: Line, times: Drawn) -> Cost:
    """Run the engine."""
    (graph, trainer), arrivals = graph_of(line, times), Arrivals()
    summary = run_virtual(Run(graph.build(), watchers=(arrivals,), stall_s=None).finish(), seed=times.seed)
    seconds = trainer.done[-1]
    stale = sum(node.dropped.get("stale", 0) for node in summary.nodes.values())
    slow = slow_share(line, times, trainer.trained)
    return Cost(STEPS / seconds, stragglers(trainer, arrivals.at) / seconds, statistics.mean(trainer.lags), slow, stale / STEPS)


def model(line: Line, times: Drawn) -> Cost:
    """Run the event model."""
    outcome = Model(line, times).run()
    slow, seconds = slow_share(line, times, outcome.trained), outcome.seconds
    lag, late = statistics.mean(outcome.lags), outcome.dropped["late"]
    return Cost(STEPS / seconds, outcome.straggler_s / seconds, lag, slow, late / STEPS)


def stragglers(trainer: Trainer, ready_at: dict[int, float]) -> float:
    """Seconds in which the sink was free and at least one of the groups it took later was ready."""
    waited, earliest = 0.0, float("inf")
    for birth, free, taken in reversed(trainer.took):
        earliest = min(earliest, ready_at[birth])
        waited += max(0.0, taken - max(free, earliest))
    return waited


def slow_share(line: Line, times: Drawn, trained: Sequence[tuple[int, ...]]) -> float:
    """Share of the trained groups whose slowest member takes longer than that of the median group."""
    numbers = [path[0] for path in trained]
    takes = {n: max(times.seconds("play", (n, m)) for m in range(line.size)) for n in range(max(numbers) + 1)}
    middle = statistics.median(takes.values())
    return sum(takes[number] > middle for number in numbers) / len(numbers)


def choices() -> list[tuple[str, Line, bool]]:
    """Name, line, and whether the engine offers it."""
    offered = [
        (f"max_lag={lag} {late}", replace(LINE, max_lag=lag, late=late), True)
        for lag in LAGS
        for late in (("wait",) if lag == 0 else ("wait", "drop"))
    ]
    arrival = ("max_lag=0 order of arrival", replace(LINE, max_lag=0, order="arrival"), False)
    depths = [(f"max_lag=4 wait depth={depth}", replace(LINE, max_lag=4, depth=depth), True) for depth in (1, 2)]
    return [offered[0], arrival, *offered[1:], *depths]


def measure(line: Line, offered: bool, kind: str) -> Cost:
    """Mean over the seeds."""
    run = engine if offered else model
    costs = [run(line, Drawn(kind, MEANS, 0.0, seed)) for seed in range(SEEDS)]  # type: ignore[arg-type]
    return Cost(*(statistics.mean(getattr(cost, key) for cost in costs) for key in Cost.__dataclass_fields__))


def row(name: str, costs: Sequence[Cost]) -> str:
    """A row of the table; each cell has one figure for each distribution."""
    formats = {"steps_per_s": "{:.2f}", "straggler": "{:.0%}", "lag": "{:.2f}", "slow": "{:.2f}", "given_up": "{:.1f}"}
    cells = [" / ".join(form.format(getattr(cost, key)) for cost in costs) for key, form in formats.items()]
    return f"| {' | '.join([name, *cells])} |"


def main() -> dict[str, object]:
    """Print the table in Markdown."""
    detail: dict[str, dict[str, float]] = {}
    print("| choice | steps a second | straggler wait | mean lag | slow groups | given up a step |")
    print("|---|---|---|---|---|---|")
    for name, line, offered in choices():
        costs = {kind: measure(line, offered, kind) for kind in KINDS}
        detail |= {f"{name}, {kind}": vars(cost) for kind, cost in costs.items()}
        print(row(name if offered else f"{name} (model)", list(costs.values())))
    heavy = {name.split(",")[0]: cost for name, cost in detail.items() if name.endswith("pareto")}
    ratios = {
        "wait_at_lag_1_to_0": heavy["max_lag=1 wait"]["steps_per_s"] / heavy["max_lag=0 wait"]["steps_per_s"],
        "drop_to_wait_at_lag_1": heavy["max_lag=1 drop"]["steps_per_s"] / heavy["max_lag=1 wait"]["steps_per_s"],
        "slow_groups_with_wait": heavy["max_lag=1 wait"]["slow"] / 0.5,
    }
    return {"bench": "freshness_costs", "ratios": ratios, "targets": {"slow_groups_with_wait": 1.0}, "detail": detail}


if __name__ == "__main__":
    print(json.dumps(main()))
