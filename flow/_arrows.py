"""Numbers that link what belongs together in a trace: the slices of an item, what made a step, what a version went through.

Of whole numbers only, so they are the same in every process. Runs that share a trace share no number.
"""

from zlib import crc32

Path = tuple[int, ...]

# No item's path begins with a negative number.
_STEP, _VERSION = -2, -3


def flow_id(run: int, path: Path) -> int:
    """Links the slices of one item of one run."""
    return hash((run, *path)) % 2**64


def step_id(run: int, node: str, step: int) -> int:
    """Links a step of a collecting sink, the first is 1, with the versions it made."""
    return hash((run, _STEP, crc32(node.encode()), step)) % 2**64


def version_id(run: int, cell: str, version: int) -> int:
    """Links a version of a cell: its publication, its loads, and every attempt that was dispatched with it."""
    return hash((run, _VERSION, crc32(cell.encode()), version)) % 2**64
