"""A slow sink holds everything before it back: depths stay at their bounds, and the shares say who waited for whom."""

import asyncio

from flow import Context, Graph, Items, Run


async def fetch(number: int, context: Context) -> int:
    await asyncio.sleep(0.001)
    return number


async def store(number: int, context: Context) -> None:
    await asyncio.sleep(0.01)


def main() -> None:
    graph = Graph("slow_sink")
    numbers = graph.source("numbers", range(100))
    fetched = graph.stage("fetched", fetch, workers=8)
    stored = graph.sink("stored", store)
    numbers >> fetched >> stored
    graph.edge(fetched, stored, capacity=Items(4))
    summary = asyncio.run(Run(graph.build()).finish())
    for name, node in summary.nodes.items():
        shares = ", ".join(f"{state} {share:.0%}" for state, share in node.shares.items() if share >= 0.005)
        print(f"{name:<8} at most {node.high_water} waited before it; time: {shares}")
    blocked = summary.nodes["fetched"].shares["output"]
    print(f"deepest queue {summary.nodes['stored'].high_water} of 4, fetched waited for room: {blocked > 0.8}")


if __name__ == "__main__":
    main()
