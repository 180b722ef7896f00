"""``headrace`` in processes that may be killed, for the experiment ``recovery``: ``python -m graphs.bench.recovery.child``.

What a process starts itself bears the name of its folder, and at its end it tells which threads are left.
"""

import os
import threading
import time

from flow.testing import appended, serve
from graphs.bench.recovery.left import MARK

ENDS_S = 1.0
"""Most seconds that a thread may still be ending when all is done."""


def _others() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread is not threading.main_thread()]


def main() -> None:
    """Import what is heavy, and wait to be asked. Processes of environments import this file too, and so nothing heavy."""
    import graphs.bench.recovery.program  # noqa: F401 - so that no process has to
    from graphs.cli import main as headrace

    def program(arguments: list[str]) -> None:
        os.environ[MARK] = os.getcwd()
        try:
            headrace(arguments)
        finally:
            ends, left = time.monotonic() + ENDS_S, _others()
            while left and time.monotonic() < ends:
                time.sleep(0.01)
                left = _others()
            appended("threads", len(left), *(thread.name.replace(" ", "_") for thread in left))

    serve(program)


if __name__ == "__main__":
    main()
