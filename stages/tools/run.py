"""The run that tools belong to: its name, where their audit rows go, and which credentials are revoked.

Entered by who runs a graph. Tasks and threads of the block know the run by a context variable, processes started in it by
variables of their environment; programs in a sandbox and MCP servers get neither.
"""

import contextlib
import functools
import os
from collections.abc import Generator
from pathlib import Path

from stages.tools.audit import AUDIT_FILE, RUN_ATTEMPT, RUN_FOLDER, RUN_PHASE, AuditLog
from stages.tools.context import tool_context_with
from stages.tools.credentials import revocations_in


@contextlib.contextmanager
def tools_of_run(folder: Path, phase: str, attempt: int = 0) -> Generator[None]:
    """Let the tools of a block belong to a run.

    Args:
        folder: of the run.
        phase: name of the graph under way, for the audit rows.
        attempt: number of this start of the run, for the same, as ``run_attempt``: no row is ever cut, whatever is done again.

    Raises:
        OSError: on leaving, where a row could not be written.
    """
    with (
        AuditLog(folder / AUDIT_FILE) as log,
        tool_context_with(
            audit=functools.partial(log.write, run_attempt=attempt, phase=phase), run=f"{folder.resolve().name}/{phase}"
        ),
        revocations_in(folder),
        _environment({RUN_FOLDER: str(folder), RUN_PHASE: phase, RUN_ATTEMPT: str(attempt)}),
    ):
        yield


@contextlib.contextmanager
def _environment(variables: dict[str, str]) -> Generator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
