"""Wrong on purpose: the barrier is missing. It is told before anything runs."""

import asyncio

from flow import BuildError, Context, Gathered, Graph


async def play(task: str, context: Context) -> int:
    return len(task)


async def best(group: Gathered[int], context: Context) -> int:
    return max(group.members)


def keep(score: int, context: Context) -> None: ...


def broken() -> Graph:
    graph = Graph("broken")
    tasks = graph.source("tasks", ["a", "bb"])
    plays = graph.stage("plays", play, workers=4)
    scores = graph.stage("scores", best)
    kept = graph.sink("kept", keep)
    tasks >> plays >> scores >> kept  # a type checker marks this line too
    return graph


async def main() -> None:
    try:
        broken().build()
    except BuildError as error:
        print(error)
        print(f"refused with {len(error.faults)} fault, rule {error.faults[0].rule}, before anything ran")


if __name__ == "__main__":
    asyncio.run(main())
