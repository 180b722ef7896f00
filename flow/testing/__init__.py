"""The public kit for tests of stages and graphs: a loop with virtual time and a seeded schedule, and contexts made by hand."""

from ._context import context
from ._loop import VirtualLoop, run_virtual

__all__ = ["VirtualLoop", "context", "run_virtual"]
