"""The smallest graph: a source, a stage with four workers, a sink. Nothing of RL is needed to use the engine."""

import asyncio

from flow import Context, Graph, Run


async def square(number: int, context: Context) -> int:
    await asyncio.sleep(0.01)  # a slow call outside
    return number * number


def three_stages(total: list[int]) -> Graph:
    def add(number: int, context: Context) -> None:
        total.append(number)

    graph = Graph("squares")
    numbers = graph.source("numbers", range(100))
    squares = graph.stage("squares", square, workers=4, order="input")
    added = graph.sink("added", add)
    numbers >> squares >> added
    return graph


def main() -> None:
    total: list[int] = []
    graph = three_stages(total)
    print(graph.draw())
    summary = asyncio.run(Run(graph.build()).finish())
    print(f"squares were busy {summary.nodes['squares'].shares['work']:.0%} of their time")
    print(f"sum of squares {sum(total)}, in order: {total == sorted(total)}")


if __name__ == "__main__":
    main()
