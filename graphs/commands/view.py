"""``headrace report`` and ``headrace view``: what a run left as a page, written once or served while the run goes on."""

import contextlib
from dataclasses import dataclass
from pathlib import Path

from graphs.commands.command_line import Work, tell
from graphs.report.page import write_report
from graphs.report.server import ReportServer
from graphs.runs.saved import saved_config
from graphs.settings import read_settings


@dataclass(frozen=True)
class ViewOptions:
    """Where a report is served."""

    port: int = 8765
    """On 127.0.0.1; 0 takes a free one."""


def report(arguments: list[str]) -> None:
    """Write the report of a run again.

    Raises:
        ValueError, LookupError, OSError: what the user can mend.
    """
    if len(arguments) != 1:
        raise ValueError(
            f"expected the folder of one run, got {' '.join(arguments)}, in report; write headrace report runs/NAME"
        )
    run = Path(arguments[0])
    saved_config(run)
    tell(f"written: {write_report(run)}")


def view(arguments: list[str]) -> Work:
    """Serve the report of a run, or of all in a folder.

    Raises:
        ValueError, LookupError: what the user can mend.
    """
    folder, *rest = arguments
    options = read_settings(ViewOptions, rest, f"headrace view {folder}")
    if not 0 <= options.port <= 65535:
        raise ValueError(f"expected a port from 0 to 65535, got {options.port}, in --port; choose one above 1024, or 0 for any")
    server = ReportServer(Path(folder), options.port)

    def work() -> None:
        with server, contextlib.suppress(KeyboardInterrupt):
            tell(f"serving {folder} at {server.address}, to this machine alone; end it with Ctrl-C")
            server.serve_forever()

    return work
