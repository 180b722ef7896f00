"""What stands in a file that somebody loaded by its path is found in a process too."""

import asyncio
import json
import pickle
import sys
from pathlib import Path
from types import ModuleType

import pytest

from flow._processes.crew import ProcessCrew
from flow.by_path import load_by_path, loaded_by_path
from flow.testing import context

FILE = """
from flow import Context

def double(value: int, context: Context) -> int:
    return 2 * value
"""


@pytest.fixture
def module(tmp_path: Path):
    (tmp_path / "file.py").write_text(FILE)
    load_by_path({"_no_such_module": str(tmp_path / "file.py")})
    yield sys.modules["_no_such_module"]
    del sys.modules["_no_such_module"]


def test_only_modules_that_no_import_finds_are_named(module) -> None:
    spoken = (module.double, json.dumps, asyncio.Event)
    assert loaded_by_path(pickle.dumps(spoken)) == {"_no_such_module": module.__file__}
    assert loaded_by_path(pickle.dumps(json.dumps)) == {}


def test_one_in_a_package_that_is_only_put_together_here_is_named(module, tmp_path: Path, monkeypatch) -> None:
    """As by pytest, which makes the packages above a test file from its folders."""
    package = ModuleType("_no_such_package")
    package.__path__ = [str(tmp_path)]
    monkeypatch.setitem(sys.modules, "_no_such_package", package)
    load_by_path({"_no_such_package.file": str(tmp_path / "file.py")})
    spoken = pickle.dumps(sys.modules["_no_such_package.file"].double)
    assert loaded_by_path(spoken) == {"_no_such_package.file": str(tmp_path / "file.py")}
    for name in ("_no_such_package.file", "_no_such_package"):
        del sys.modules[name]
    load_by_path({"_no_such_package.file": str(tmp_path / "file.py")})  # as in a process that has heard of neither
    assert pickle.loads(spoken) is sys.modules["_no_such_package.file"].double
    del sys.modules["_no_such_package.file"]


def test_a_stage_of_such_a_file_runs_in_a_process(module) -> None:
    async def main() -> int:
        crew = ProcessCrew("node", module.double, int, int, 1)
        await crew.open()
        try:
            return await crew.call(21, context())
        finally:
            await crew.close()

    assert asyncio.run(main()) == 42
