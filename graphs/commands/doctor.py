"""``headrace doctor``: what this machine and this installation have, what would stop a run, and what to do about it.

Exit status 0 where a run can work, 1 where something would stop it, 2 for arguments it does not know.
"""

import functools
import os
import shutil
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

from graphs.doctor.devices import find_devices
from graphs.doctor.finding import Finding, count
from graphs.doctor.folders import find_compiled, find_runs, within
from graphs.doctor.machine import find_machine
from graphs.doctor.packages import find_packages
from graphs.doctor.report import as_json, as_text

FOLDER_S = 20.0
"""Most seconds for a folder to be looked at."""


def examine(folder: Path, within_s: float) -> list[Finding]:
    """Look at everything.

    Args:
        folder: of runs.
        within_s: most seconds for the devices to answer.
    """
    folders = [
        within("runs folder", functools.partial(find_runs, folder), FOLDER_S), within("compiled", find_compiled, FOLDER_S)
    ]  # fmt: skip
    return [*find_packages(), *find_devices(within_s), *find_machine(), *folders]


def doctor(arguments: Sequence[str]) -> int:
    """Look, tell, and give the exit status."""
    parser = ArgumentParser("headrace doctor", description="What would stop a run here, and what to do about it.")
    parser.add_argument("--json", action="store_true", help="findings as one JSON object, for scripts")
    parser.add_argument("--folder", type=Path, default=Path("runs"), help="folder of runs (default: runs)")
    parser.add_argument("--within-s", type=float, default=120.0, help="most seconds for devices to answer (default: 120)")
    given = parser.parse_args(list(arguments))
    findings = examine(given.folder, given.within_s)
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    told = as_json(findings) if given.json else as_text(findings, shutil.get_terminal_size().columns, colour=colour)
    sys.stdout.write(told + "\n")
    return 1 if count(findings, "fault") else 0
