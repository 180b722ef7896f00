"""Modules that no process finds by name, since somebody loaded them by their path: what a process needs to load them too.

The command line loads a user's file so, under a name of its own. Not for the script that runs: multiprocessing sees to that.
Called on both sides of a process that is handed something pickled. Public, as whoever starts processes of its own needs it too.
"""

import importlib.util
import sys
from collections.abc import Mapping
from importlib.machinery import PathFinder
from types import ModuleType

_OF_MULTIPROCESSING = ("__main__", "__mp_main__")


def loaded_by_path(pickled: bytes) -> dict[str, str]:
    """Files, by name, of those modules that a pickle may speak of."""
    found: dict[str, str] = {}
    for name, module in tuple(sys.modules.items()):
        file = getattr(module, "__file__", None)
        spoken_of = name not in _OF_MULTIPROCESSING and name.encode() in pickled
        if spoken_of and isinstance(file, str) and file.endswith(".py") and not _is_found(name):
            found[name] = file
    return found


def load_by_path(files: Mapping[str, str]) -> None:
    """Load modules under their names.

    Args:
        files: as ``loaded_by_path`` gave them.

    Raises:
        Exception: as raised by importing one.
    """
    for name, file in files.items():
        _have_packages(name)
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


def _have_packages(name: str) -> None:
    """What is above a module must be there for an import by its name, also where it was put together from files."""
    parent = name.rpartition(".")[0]
    if parent and parent not in sys.modules and not _is_found(parent):
        _have_packages(parent)
        package = sys.modules[parent] = ModuleType(parent)
        package.__path__ = []


def _is_found(name: str) -> bool:
    """Whether an import by the name would find it. ``importlib.util.find_spec`` would ask the loaded module itself."""
    parent = name.rpartition(".")[0]
    if parent and not _is_found(parent):  # somebody may have put it together from files, and only here
        return False
    path = getattr(sys.modules.get(parent), "__path__", None)
    return (not parent or path is not None) and PathFinder.find_spec(name, path) is not None
