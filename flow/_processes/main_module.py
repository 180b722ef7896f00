"""The user's own script, seen from a process: what was defined there is found under ``__main__`` here too.

As multiprocessing's spawn does it, whose functions do the work: the script is run once more, under the name ``__mp_main__``, so
that what stands under ``if __name__ == "__main__"`` is left out. It is run only where the stage needs it, since a script may
import much.
"""

import sys
from pathlib import Path

_running: list[bool] = []
"""Not empty while a process runs the script once more."""


def describe_main(payload: bytes) -> dict[str, str]:
    """How to find the main module, empty where the pickled stage does not speak of it."""
    if b"__main__" not in payload and b"__mp_main__" not in payload:
        return {}
    main = sys.modules["__main__"]
    sys.modules.setdefault("__mp_main__", main)  # exceptions that are defined there come back under this name
    name = getattr(main.__spec__, "name", None)
    if name is not None:
        return {"init_main_from_name": name}
    path = getattr(main, "__file__", None)
    return {} if path is None else {"init_main_from_path": str(Path(path).absolute())}


def prepare_main(main: dict[str, str]) -> None:
    """Run the user's script in this process, so that what it defines can be unpickled."""
    if not main:
        return
    from multiprocessing.spawn import prepare  # slow to import, and few need it

    _running.append(True)
    try:
        prepare(main)
    finally:
        _running.clear()


def refuse_while_preparing(node: str) -> None:
    """A script without a guard would start its run again in each process, without end.

    Raises:
        RuntimeError: this process is running the user's script only to find the stage.
    """
    if _running:
        raise RuntimeError(
            f"expected {sys.argv[0]}, which defines the stage of '{node}', to start its run under "
            '`if __name__ == "__main__":`, got a start while a process of the run imported it; put the start under the guard, '
            "or the stage into a module"
        )
