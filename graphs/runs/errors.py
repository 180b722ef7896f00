"""The first traceback of each kind of error of a run, as files in its folder. Who counts errors is ``flow``."""

import re
from pathlib import Path

from flow import Summary

_PLACE = re.compile(r'^ *File "(.+)", line (\d+)', re.MULTILINE)
ERRORS = "errors"
"""Folder of the run that they lie in, a file for each stage and kind."""


class ErrorFiles:
    """Writes a file for each kind that was not seen before.

    Args:
        run: folder of the run.
    """

    def __init__(self, run: Path) -> None:
        self._folder = run / ERRORS
        self._known: set[tuple[str, str]] = set()

    def see(self, summary: Summary) -> None:
        """Write what is new. A disk that takes none is not told here: rows meet it first."""
        for name, node in summary.nodes.items():
            for kind, trace in node.failures.items():
                if (name, kind) not in self._known:
                    self._known.add((name, kind))
                    self._write(error_file(self._folder, name, kind), trace or kind)

    def _write(self, file: Path, trace: str) -> None:
        try:
            self._folder.mkdir(exist_ok=True)
            file.write_text(trace if trace.endswith("\n") else trace + "\n")
        except OSError:
            return


def error_file(folder: Path, stage: str, kind: str) -> Path:
    """Where the traceback of a kind of error of a stage lies."""
    name = re.sub(r"[^\w.-]+", "-", f"{stage}-{kind}")[:100].strip("-.")
    return folder / f"{name}.txt"


def last_line(trace: str) -> str:
    """The last line of a traceback, which says what it was."""
    return trace.strip().splitlines()[-1].strip() if trace.strip() else ""


def in_short(kind: str, trace: str) -> str:
    """What a traceback ends with, and the place in the code that is nearest to it: ``no such file (tools.py:12)``."""
    places = [f"{Path(file).name}:{line}" for file, line in _PLACE.findall(trace)]
    told = last_line(trace).removeprefix(f"{kind}: ")
    return f"{told} ({places[-1]})" if places else told
