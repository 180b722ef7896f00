"""The public kit for tests of stages and graphs: virtual time, disturbances, sources and sinks, and what to compare with.

``simulate`` runs a graph in virtual time from a seed; ``Script`` and ``Collected`` are its ends, ``faulty`` breaks what lies
between. ``killed`` kills a saved graph again and again, and has it go on from what is on the disk; ``processes`` starts real
processes that may be killed, of a script that calls ``serve``. ``random_graph`` and the
strategy ``graphs`` draw whole graphs, ``check_graph`` compares a run with an interpreter. ``check_stage`` tests a single stage
against its contract.
"""

from ._check_stage import check_stage
from ._collected import Arrival, Collected
from ._context import context
from ._drawing import random_graph
from ._faults import Faults, faulty
from ._forks import appended, reach, serve
from ._graphs import RandomGraph
from ._interpreter import Expected, expected
from ._killed import Kill, Life, Lived, killed
from ._lives import Process, Start, points_of, processes
from ._loop import VirtualLoop, run_virtual
from ._oracle import check_graph, reached
from ._script import Pause, Script
from ._simulate import Simulated, simulate
from ._strategies import graphs

__all__ = [
    "Arrival", "Collected", "Expected", "Faults", "Kill", "Life", "Lived", "Pause", "Process", "RandomGraph", "Script",
    "Simulated", "Start", "VirtualLoop", "appended", "check_graph", "check_stage", "context", "expected", "faulty", "graphs",
    "killed", "points_of", "processes", "random_graph", "reach", "reached", "run_virtual", "serve", "simulate",
]  # fmt: skip
