"""A saved program in a process of its own, whose files may not grow beyond a size for a while: what a full disk says to it.

``python full_disk.py FOLDER FIRST LAST``: the limit holds from the beginning of one commit up to that of another.
"""

import json
import resource
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "checks"))

from saved_program import Program, Sum

from flow.saving import CommitFailed
from flow.saving._points import listeners

LIMIT = 20_000


class Large(Sum):
    """Saves more than the limit."""

    def save(self, folder: Path):
        write = super().save(folder)

        def large() -> None:
            write()
            (folder / "arrays").write_bytes(b"0" * 2 * LIMIT)

        return large


def main(folder: str, first: str, last: str) -> None:
    begun = 0

    def limit(point: str) -> None:
        nonlocal begun
        if point == "commit.begin":
            begun += 1
            full = int(first) <= begun < int(last)
            hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT if full else hard, hard))

    listeners.append(limit)
    program = Program(Path(folder), Large(), steps=5)
    failure, status = "", ""
    try:
        status = program.live().status
    except CommitFailed as error:
        failure = str(error)
    told = [error.errno for error in program.told if isinstance(error, OSError)]
    print(json.dumps({"status": status, "told": told, "failure": failure, "taken": len(program.sink.taken)}))
    sys.exit(1 if failure else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
