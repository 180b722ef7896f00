"""Type checkers find a wrong connection on its own line, in the editor, before anything runs.

Pyright and mypy both run over one file of right graphs and one of wrong ones, each wrong line marked.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHECKERS = {
    "pyright": ("-m", "pyright", "--outputjson"),
    "mypy": ("-m", "mypy", "--no-incremental", "--no-error-summary", "--follow-imports=silent", "--hide-error-context"),
}

PARTS = """
from typing import Literal

from flow import (
    Collect, Context, Drop, Emit, Failed, Filtered, Freshness, Gathered, Graph, Items, Many, Node, Processes, Retry, Threads,
)

async def length(value: str, context: Context) -> int: return len(value)
def text(value: int, context: Context) -> str: return str(value)
def maybe(value: int, context: Context) -> int | Filtered: return value
async def perhaps(value: int, context: Context) -> Failed[int] | int | Filtered: return value
async def words(value: str, context: Context) -> Many[str]: return Many(value.split())
def letters(value: str, context: Context) -> Many[str]: return Many(list(value))
def show(value: int, context: Context) -> None: ...
def total(group: Gathered[int], context: Context) -> float: return sum(group.members)

class Train:
    def add(self, value: float, context: Context) -> None: ...
    def finish(self, context: Context) -> bytes: return b""

class SlowTrain:
    async def add(self, value: float, context: Context) -> None: ...
    async def finish(self, context: Context) -> bytes: return b""

class Tasks:
    def draw(self) -> str: return ""

class Play:
    async def __call__(self, task: str, context: Context) -> int: return 1

def parity(value: int) -> Literal["even", "odd"]: return "odd" if value % 2 else "even"
def initial(value: str) -> str: return value[:1]

graph = Graph("g", pools={"sandbox": 2, "engine": (1, 8)}, rates={"search": 2.5})
"""

RIGHT = (
    PARTS
    + """
weights = graph.latest("weights", bytes)
tasks: Node[None, str] = graph.source("tasks", Tasks())
members = graph.repeat("members", tasks, n=4)
episodes = graph.stage("episodes", Play(), workers=2, reads=weights, needs={"sandbox": 1}, deadline_s=3, on_error=Drop())
groups: Node[int, Gathered[int]] = graph.group("groups", episodes, missing=Retry(1, then="drop"))
reward: Node[Gathered[int], float] = graph.stage("reward", total, order="input")
trainer: Node[float, bytes] = graph.sink("trainer", Train(), collect=Collect(4), placement=Threads())
slow: Node[float, bytes] = graph.sink("slow", SlowTrain(), collect=Collect(4))
tasks >> members >> episodes >> groups >> reward >> trainer
graph.edge(reward, trainer, capacity=Items(8))
graph.feedback(trainer, weights, initial=b"", freshness=Freshness(1))
graph.feedback(slow, weights, initial=lambda: b"")
versions: Node[None, int] = graph.versions("versions", weights)
versions >> graph.stage("measured", maybe) >> graph.sink("told", show)

lines = graph.source("lines", ["a b"])
split = graph.stage("split", words)
spell = graph.stage("spell", letters)
measure = graph.stage("measure", length, on_error=Emit(lambda value, failure, context: 0))
keep: Node[int, int] = graph.stage("keep", maybe)
mark: Node[int, int] = graph.stage("mark", perhaps)
printed = graph.sink("printed", show)
lines >> split >> spell >> measure >> keep >> mark >> printed

numbers = graph.source("numbers", [1, 2])
texts = graph.stage("texts", text, key=lambda value: value % 7, needs={"engine": 2, "search": 1}, placement=Processes())
odds = graph.stage("odds", maybe)
sorted_numbers: Node[int, int] = graph.route("sorted", numbers, by=parity, to={"even": texts, "odd": odds}, on_error=Drop())
by_size = graph.route("by size", odds, by=lambda value: value > 9, to={True: printed, False: graph.sink("small", show)})
numbers >> sorted_numbers
copies: Node[int, int] = graph.broadcast("copies", odds)
odds >> copies >> by_size
shares: Node[int, int] = graph.balance("shares", copies)
copies >> shares >> keep
shares >> mark
joined: Node[int, int] = graph.merge("joined", [keep, mark], weights={"keep": 2}, patience=3)
mixed: Node[int | str, int | str] = graph.merge("mixed", (joined, texts))
both = graph.merge("both", (measure, keep))
both >> printed
joined >> printed
graph.without("keep").with_("sorted", to={"even": texts}).build()
"""
)

WRONG = PARTS + '''
numbers = graph.source("numbers", [1, 2])
measure = graph.stage("measure", length)
shown = graph.sink("shown", show)
reward = graph.stage("reward", total)
trainer = graph.sink("trainer", Train(), collect=Collect(4))
members = graph.repeat("members", numbers, n=2)
sentences = graph.group("sentences", graph.stage("words", words))
weights = graph.latest("weights", bytes)
versions = graph.latest("versions", int)

numbers >> measure  # wrong: int into str
members >> measure  # wrong: a repeat passes its type on
measure >> shown >> trainer  # wrong: None into float
measure >> reward  # wrong: a single into a group
graph.edge(numbers, measure)  # wrong: int into str
graph.edge(sentences, reward)  # wrong: groups of str into groups of int
graph.feedback(trainer, versions)  # wrong: bytes into a cell of int
graph.feedback(trainer, weights, initial=3)  # wrong: int into a cell of bytes
graph.feedback(trainer, weights, initial=lambda: "")  # wrong: str into a cell of bytes
graph.stage("a", length, workers="many")  # wrong: a number of workers
graph.stage("b", length, order="sorted")  # wrong: no such order
graph.stage("c", length, worker=2)  # wrong: no such setting
graph.sink("d", show, collect=Collect(2))  # wrong: a function cannot collect
graph.stage("e", lambda value: value)  # wrong: no context
graph.source("f", 3)  # wrong: nothing to draw from
graph.versions("g", weights) >> measure  # wrong: the number of a version into str
copies = graph.broadcast("copies", numbers)
shares = graph.balance("shares", numbers)
copies >> shown
copies >> measure  # wrong: a copy of int into str
shares >> measure  # wrong: a share of int into str
measure >> copies >> measure  # wrong: int into str, behind the broadcast
graph.route("g", numbers, by=parity, to={"even": shown, "odd": measure})  # wrong: int into the str of one branch
graph.route("h", numbers, by=initial, to={"a": shown})  # wrong: keys of str
graph.route("i", numbers, by=parity, to={1: shown})  # wrong: no such key
graph.route("j", numbers, by=parity, to={"even": shown}, on_error=Retry(1))  # wrong: a key does not change
joined: Node[int, int] = graph.merge("joined", (numbers, measure, sentences))  # wrong: groups among numbers
mixed = graph.merge("mixed", (numbers, sentences))
mixed >> shown  # wrong: groups among numbers
merged = graph.merge("merged", (numbers, measure))
merged >> shown
merged >> reward  # wrong: int into a group
graph.merge("k", (numbers,), weights={"numbers": "all"})  # wrong: a weight is a number
graph.stage("l", length, key="name")  # wrong: a key is a function
graph.stage("m", length, placement=Processes)  # wrong: a class, not a placement
Graph("n", pools={"engine": (1, 2, 3)})  # wrong: least and most
Graph("o", rates={"search": "fast"})  # wrong: a number a second
graph.without(numbers)  # wrong: a name
'''  # fmt: skip


def errors(checker: str, folder: Path) -> dict[str, dict[int, str]]:
    """Errors by file and line, as the checker words them. One run for all files, since starting it is what costs the time."""
    environment = {**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1", "MYPYPATH": str(ROOT)}
    files = sorted(file.name for file in folder.glob("*.py"))
    command = [sys.executable, *CHECKERS[checker], *files]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, env=environment)
    found: dict[str, dict[int, str]] = {file: {} for file in files}
    if checker == "mypy":
        assert done.returncode in (0, 1), done.stderr
        for file, line, message in re.findall(r"^(\w+\.py):(\d+): error: (.*)$", done.stdout, flags=re.MULTILINE):
            found[file][int(line)] = message
        return found
    for entry in json.loads(done.stdout)["generalDiagnostics"]:
        # A line of arrows is a statement without an effect to pyright; whoever minds writes ``_ = a >> b``.
        if entry["severity"] == "error" and entry.get("rule") != "reportUnusedExpression":
            found[Path(entry["file"]).name][entry["range"]["start"]["line"] + 1] = entry["message"]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("checker", CHECKERS)
def test_a_checker_accepts_right_graphs_and_marks_each_wrong_line(checker, tmp_path):
    (tmp_path / "right.py").write_text(RIGHT)
    (tmp_path / "wrong.py").write_text(WRONG)
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({"extraPaths": [str(ROOT)]}))
    found = errors(checker, tmp_path)
    assert found["right.py"] == {}
    marked = {number for number, line in enumerate(WRONG.splitlines(), 1) if "# wrong:" in line}
    assert set(found["wrong.py"]) == marked
