"""The tool ``python``: runs a program the model wrote, in a sandbox, and answers with what it printed.

Each call is a process of its own, so variables are gone after it; files in its folder last as long as the episode. The
interpreter is that of the run, with the packages that it has.
"""

import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from stages.tools.function import FunctionTool
from stages.tools.limits import ToolLimits
from stages.tools.sandbox import Sandbox, SandboxConfig
from stages.tools.signature import Signature
from stages.tools.tool import Tool

PROGRAM = Path(__file__).with_name("program.py")
"""The script that runs it. The code goes in by a pipe: this process opens nothing that a program has prepared."""


class PythonTools:
    """A toolset of one tool, with a sandbox for each episode. ``sandbox.not_isolated`` says what it does not keep out."""

    def __init__(self, config: SandboxConfig | None = None, **limits: Any):
        """Configure; starts nothing.

        Args:
            config: limits of the sandbox; ``None`` for the defaults.
            limits: fields of ``ToolLimits``. At the deadline, at a cancellation and at the end of the episode the program is
                killed with all it started.
        """
        self._config = config or SandboxConfig()
        self._limits = ToolLimits(**{"max_output_tokens": 1024, **limits}).model_dump()

    @property
    def specs(self) -> Sequence[Signature]:
        """Name, description and parameters of the tool, as the model is shown them."""
        return (_SIGNATURE,)

    @asynccontextmanager
    async def open(self, key: tuple[int, int, int, int]) -> AsyncGenerator[Sequence[Tool]]:
        """See ``Toolset.open``."""
        async with Sandbox(self._config) as sandbox:

            async def call(code: str) -> str:
                return await run_python(sandbox, code)

            yield (FunctionTool(call, signature=_SIGNATURE, **self._limits),)


async def run_python(sandbox: Sandbox, code: str) -> str:
    """What a program printed, after a line with its exit status where that is not 0."""
    finished = await sandbox.run([sys.executable, "-I", PROGRAM], code.encode())
    if finished.status != 0:
        return f"exit status {finished.status}\n{finished.output}"
    return finished.output or "(nothing was printed)"


async def python(code: str) -> str:
    """Run a Python program and return what it prints. Only what is printed is seen, and nothing is kept but files.

    Args:
        code: the whole program, with its imports.
    """
    async with Sandbox() as sandbox:
        return await run_python(sandbox, code)


_SIGNATURE = Signature(python)
