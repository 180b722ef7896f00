"""The deadline of attempts that have none of their own: no wait is without a bound.

Looked at once a minute, so that it costs an attempt nothing: one that lasts half an hour need not be cancelled on the second.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from ._core.item import Item
from ._workers.hands import Crew

LONGEST_S = 1800.0
"""Seconds an attempt may take where the node says nothing else."""
_LOOK_S = 60.0


async def end_longest(crews: Sequence[Crew]) -> None:
    """Cancel attempts that take too long, as their own deadline would, until cancelled."""
    loop = asyncio.get_running_loop()
    seen: dict[asyncio.Task[Any], tuple[Item, int, float]] = {}  # the attempt of a task, and since when it is known
    while True:
        await asyncio.sleep(_LOOK_S)
        now, known = loop.time(), seen
        seen = {}
        for crew in crews:
            if crew.node.spec.deadline_s is not None:
                continue
            for task, item in crew.attempts.items():
                before = known.get(task)
                same = before is not None and before[0] is item and before[1] == item.attempt
                began = before[2] if before is not None and same else now
                seen[task] = (item, item.attempt, began)
                if now - began >= LONGEST_S - _LOOK_S:
                    crew.deadlines.end(task)
