"""Files of the user's own: every mistake in one is told with the user's lines and exit status 2."""

import json
from pathlib import Path

import pytest

from graphs.cli import main

GRAPH = """
from pydantic import BaseModel
from flow import Context, Graph
{more}

class Settings(BaseModel):
    count: int{default}
    shout: bool = False

def keep(text: str, context: Context) -> None: ...

def words(config: Settings) -> Graph:
    graph = Graph("words")
    source = graph.source("source", ["a"] * config.count)
    kept = graph.sink("kept", keep)
    source >> kept
    {end}
"""


def write(folder: Path, *, more: str = "", default: str = " = 3", end: str = "return graph") -> None:
    (folder / "mine.py").write_text(GRAPH.format(more=more, default=default, end=end))


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    out, err = capsys.readouterr()
    assert "graphs/" not in err, "our own lines are of no use to the user"
    return out + err


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def taken(folder: Path, name: str) -> int:
    return json.loads((folder / "runs" / name / "summary.json").read_text())["stages"]["kept"]["taken"]


def test_an_ordinary_pydantic_config_becomes_settings(folder: Path) -> None:
    write(folder)
    main(["run", "mine.py:words", "--options.name", "three"])
    main(["run", "mine.py:words", "--count", "5", "--options.name", "five"])
    assert (taken(folder, "three"), taken(folder, "five")) == (3, 5)


def test_a_setting_without_a_default_is_asked_for(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, default="")
    main(["run", "mine.py:words", "--count", "2", "--options.name", "two"])
    assert taken(folder, "two") == 2
    assert "--count" in refused(capsys, "run", "mine.py:words")


def test_a_file_may_import_its_neighbours(folder: Path) -> None:
    (folder / "neighbour.py").write_text("VALUE = 1\n")
    write(folder, more="from neighbour import VALUE")
    main(["check", "mine.py:words"])


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        ({"more": "import a_module_that_is_not_there"}, "No module named 'a_module_that_is_not_there'"),
        ({"more": "def f(:"}, "SyntaxError"),
        ({"end": "return {}['key']"}, "KeyError: 'key'"),
        ({"end": "pass"}, "did you forget to return it?"),
    ],
    ids=["import", "syntax", "exception", "no return"],
)
def test_a_mistake_is_told_with_its_line(
    folder: Path, capsys: pytest.CaptureFixture[str], broken: dict[str, str], told: str
) -> None:
    write(folder, **broken)
    text = refused(capsys, "check", "mine.py:words")
    assert told in text
    assert "mine.py" in text


def test_something_that_is_no_function_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, more="number = 3\nasync def later(): ...")
    assert "got int" in refused(capsys, "check", "mine.py:number")
    assert "got an async function" in refused(capsys, "check", "mine.py:later")
    assert "did you mean 'words'?" in refused(capsys, "check", "mine.py:word")
