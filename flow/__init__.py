"""The engine of headrace: typed stage graphs with leases, bounded edges, freshness and traces. It knows no RL and no JAX.

``_graph`` declares, ``_check`` proves, ``_run`` and ``_workers`` execute over the synchronous ``_core``; ``trace`` records and
``testing`` is the kit for tests of stages and graphs.
"""

from ._context import Context
from ._errors import BudgetExceeded, BuildError, DeadlineExceeded, FlowError, StageFailed, Stalled
from ._graph import Graph
from ._handles import Cell, Node
from ._item import Failed, Filtered, Gathered, Many
from ._limits import Collect, Cost, Freshness, Inline, Items, Processes, Threads
from ._plan import Plan
from ._policy import Drop, Emit, Fail, Failure, Retry, Shrink
from ._run import Run
from ._spans import count, mark, span
from ._summary import Summary

__all__ = [
    "BudgetExceeded", "BuildError", "Cell", "Collect", "Context", "Cost", "DeadlineExceeded", "Drop", "Emit", "Fail", "Failed",
    "Failure", "Filtered", "FlowError", "Freshness", "Gathered", "Graph", "Inline", "Items", "Many", "Node", "Plan",
    "Processes", "Retry", "Run", "Shrink", "StageFailed", "Stalled", "Summary", "Threads",
    "count", "mark", "span",
]  # fmt: skip
