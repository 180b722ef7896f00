"""Runs the Python program that comes on standard input, as if it were ``main.py`` of the current folder. A script.

``python.py`` starts it in a sandbox. There is no such file: nothing is written where the programs before have written, and so
nothing that they left, a link or a pipe of that name, is ever opened. Errors are told with the lines of the program.
"""

import linecache
import os
import sys
import traceback
import types


def main() -> None:
    """Run it, in a module of its own, which is ``__main__`` from then on."""
    code, path = sys.stdin.buffer.read().decode(), os.path.join(os.getcwd(), "main.py")
    linecache.cache[path] = (len(code), None, code.splitlines(keepends=True), path)
    sys.argv, sys.excepthook = ["main.py"], _tell
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    module.__file__ = path
    exec(compile(code, path, "exec", dont_inherit=True), module.__dict__)


def _tell(kind: type[BaseException], error: BaseException, trace: types.TracebackType | None) -> None:
    """As the interpreter tells it, without the calls of this file."""
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    traceback.print_exception(kind, error, trace)


if __name__ == "__main__":
    main()
