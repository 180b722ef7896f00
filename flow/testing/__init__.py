"""The public kit for tests of stages and graphs: a loop with virtual time and a seeded schedule, and contexts made by hand."""

from ._context import context
from ._faults import Faults, faulty
from ._loop import VirtualLoop, run_virtual
from ._simulate import Simulated, simulate

__all__ = ["Faults", "Simulated", "VirtualLoop", "context", "faulty", "run_virtual", "simulate"]
