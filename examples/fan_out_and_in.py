"""Tasks of two kinds take two ways and come together again: a rate for one, processes for the other, a log on the side.

Run it with a guard as below, since processes import this file again.
"""

import asyncio
import time
from dataclasses import dataclass

from flow import Context, Graph, Processes, Run


@dataclass(frozen=True)
class Task:
    kind: str
    number: int


@dataclass(frozen=True)
class Answer:
    kind: str
    value: int


async def look_up(task: Task, context: Context) -> Answer:
    """Asks a service that takes 50 questions a second."""
    await asyncio.sleep(0.01)
    return Answer(task.kind, task.number)


def compute(task: Task, context: Context) -> Answer:
    """Holds the interpreter, so it has processes of its own."""
    return Answer(task.kind, sum(n * n for n in range(20_000 + task.number)) % 1000)


def main() -> None:
    answers: list[Answer] = []
    kinds: dict[str, int] = {}

    def keep(answer: Answer, context: Context) -> None:
        answers.append(answer)

    def count(answer: Answer, context: Context) -> None:
        kinds[answer.kind] = kinds.get(answer.kind, 0) + 1

    graph = Graph("ways", rates={"service": 50.0})
    tasks = graph.source("tasks", [Task("fact" if n % 3 else "sum", n) for n in range(60)])
    facts = graph.stage("facts", look_up, workers=8, needs={"service": 1})
    sums = graph.stage("sums", compute, workers=2, placement=Processes())
    ways = graph.route("ways", tasks, by=lambda task: task.kind, to={"fact": facts, "sum": sums})
    both = graph.merge("both", [facts, sums])
    copies = graph.broadcast("copies", both)
    tasks >> ways
    both >> copies
    copies >> graph.sink("kept", keep)
    copies >> graph.sink("counted", count)
    print(graph.draw())

    began = time.monotonic()
    summary = asyncio.run(Run(graph.build()).finish())
    print(f"{len(answers)} answers in {time.monotonic() - began:.1f} s, every item accounted for: {summary.balanced}")
    print(f"40 facts at 50 a second took at least 0.78 s: {summary.seconds > 0.78}; {dict(sorted(kinds.items()))}")


if __name__ == "__main__":
    main()
