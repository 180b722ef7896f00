"""One worker of one node, whatever kind: starts what its kind does, and closes the edge behind the node at the end."""

from .collector import CollectorWorker
from .fanout import Barrier, Repeat
from .fans import FanWorker
from .hands import Hands
from .source import run_source
from .stage import Stage
from .versions import Versions


async def work(hands: Hands) -> None:
    """Work until the input has ended. The last worker of a node closes the edge behind it."""
    hands.own()
    spec = hands.node.spec
    if spec.kind == "source":
        await run_source(hands)
    elif spec.kind == "versions":
        await Versions(hands).run()
    elif spec.kind == "repeat":
        await Repeat(hands).run()
    elif spec.kind == "group":
        await Barrier(hands).run()
    elif hands.node.fan is not None:
        await FanWorker(hands).run()
    elif spec.collect is not None:
        await CollectorWorker(hands).run()
    else:
        await Stage(hands).run()
    hands.lane.close()
    hands.crew.running -= 1
    if hands.crew.running == 0:
        for edge in hands.node.outputs:
            edge.close()
