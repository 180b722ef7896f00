"""The engine of headrace: typed stage graphs with leases, bounded edges, freshness and traces. It knows no RL and no JAX.

``_graph`` declares, ``_check`` proves, ``_run`` and ``_workers`` execute over the synchronous ``_core``; ``trace`` records and
``testing`` is the kit for tests of stages and graphs.
"""

from ._context import Context, Versioned
from ._errors import BudgetExceeded, BuildError, DeadlineExceeded, FlowError, LedgerError, StageFailed, Stalled
from ._graph import Cell, Collector, Graph, Node, Source
from ._item import Failed, Filtered, Gathered, Many
from ._lag import LoopLag
from ._limits import Collect, Cost, Freshness, Inline, Items, Threads
from ._plan import Plan
from ._policy import Drop, Emit, Fail, Failure, Retry, Shrink
from ._run import Run, Watcher
from ._summary import Summary

__all__ = [
    "BudgetExceeded", "BuildError", "Cell", "Collect", "Collector", "Context", "Cost", "DeadlineExceeded", "Drop", "Emit",
    "Fail", "Failed", "Failure", "Filtered", "FlowError", "Freshness", "Gathered", "Graph", "Inline", "Items", "LedgerError",
    "LoopLag", "Many", "Node", "Plan", "Retry", "Run", "Shrink", "Source", "StageFailed", "Stalled", "Summary", "Threads", "Versioned", "Watcher",
]  # fmt: skip
