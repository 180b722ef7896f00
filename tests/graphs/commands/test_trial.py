"""``headrace try``: an environment is played without a model, by chance, by a script, or by a person."""

import io
from pathlib import Path

import pytest

from graphs.cli import main
from graphs.commands.trial import read_turn
from stages.records import BadCall, Message, ToolCall

FILE = """
from stages.envs.custom import CustomEnv, over
from stages.envs.pool import EnvPool
from stages.records import Task
from stages.tools.function import FunctionTool

TASKS = [Task("easy", "say 6", "6"), Task("hard", "say 7", "7")]

def double(n: int) -> str:
    '''Twice a number.'''
    return str(2 * n)

class Say(CustomEnv):
    tools = (FunctionTool(double),)
    def reset(self, task, key):
        self.answer = task.answer
        return task.prompt
    def step(self, message):
        if message.content == "?":
            raise OSError("no idea")
        return over("well done") if message.content == self.answer else "no"
    def score(self):
        return 1.0

def of_task(task):
    return Say()

pool = EnvPool(of_task, 1)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "mine.py").write_text(FILE)
    return tmp_path


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    main(["try", *arguments])
    return capsys.readouterr().out.splitlines()


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["try", *arguments])
    assert ended.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("name", ["Say", "of_task", "pool"])
def test_a_script_is_played_and_told_turn_by_turn(folder, capsys, name):
    lines = told(capsys, f"mine.py:{name}", "--agent", "scripted", "--say", "5", '/double {"n": 3}', "6")
    assert lines == [
        "user: say 6",
        "  tool double(n): Twice a number.",
        "assistant: 5",
        "user: no",
        'assistant calls double {"n": 3}',
        "tool: 6",
        "assistant: 6",
        "user: well done",
        "finished; score: reward 1",
    ]


@pytest.mark.slow
def test_an_environment_of_the_file_plays_in_a_process(folder, capsys):
    """The process loads the file by its path, as the command line did."""
    (folder / "housed.py").write_text(FILE + "\nfrom stages.envs.process_env import in_process\nhoused = in_process(of_task)\n")
    lines = told(capsys, "housed.py:housed", "--agent", "scripted", "--say", "6")
    assert lines[-1] == "finished; score: reward 1"


def test_a_person_types_turns_and_may_leave(folder, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("1\n2\n"))
    lines = told(capsys, "mine.py:Say", "--agent", "human", "--task", "hard")
    assert lines[0] == "user: say 7"
    assert lines[-1] == "left, still going on; score: reward 1"


def test_chance_is_decided_by_its_seed(folder, capsys):
    one, again, other = (told(capsys, "mine.py:Say", "--seed", seed, "--max-turns", "5") for seed in ("1", "1", "2"))
    assert one == again != other
    assert len([line for line in one if line.startswith("assistant")]) >= 1


def test_what_an_environment_does_wrong_is_told_and_is_the_exit_status(folder, capsys):
    with pytest.raises(SystemExit) as ended:
        told(capsys, "mine.py:Say", "--agent", "scripted", "--say", "?")
    assert ended.value.code == 1
    assert capsys.readouterr().out.splitlines()[-1] == "broken: OSError: no idea"


def test_tasks_come_from_a_file_or_from_the_command_line(folder, capsys):
    (folder / "tasks.jsonl").write_text('{"id": "a", "prompt": "say 9", "answer": "9"}\n')
    lines = told(capsys, "mine.py:Say", "--tasks", "tasks.jsonl", "--agent", "scripted", "--say", "9")
    assert (lines[0], lines[-1]) == ("user: say 9", "finished; score: reward 1")
    (folder / "bare.py").write_text(FILE.replace("TASKS =", "OTHERS ="))
    lines = told(capsys, "bare.py:Say", "--prompt", "say 3", "--answer", "3", "--agent", "scripted", "--say", "3")
    assert (lines[0], lines[-1]) == ("user: say 3", "finished; score: reward 1")


def test_the_environment_of_a_ready_program_is_known_by_its_name(capsys):
    lines = told(capsys, "calculator", "--agent", "scripted", "--say", '/calculator {"expression": "6*7"}', "42")
    assert lines[-3:] == ["tool: 42", "assistant: 42", "finished; score: none"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["mine.py:Sai"], "expected an environment 'Sai' in mine.py, got none; did you mean 'Say'?"),
        (["mine.py:TASKS"], "expected an environment, got list, in mine.py:TASKS"),
        (["mine.py:Say", "--task", "odd"], "expected the id of a task, such as easy, hard; got 'odd', in --task"),
        (["calculater"], "did you mean 'calculator'?"),
        (["gone.py:Say"], "expected a Python file, got 'gone.py', which does not exist"),
    ],
)
def test_what_is_no_environment_is_refused(folder, capsys, arguments, said):
    assert said in refused(capsys, *arguments)


def test_a_line_is_a_call_only_where_json_follows_a_name():
    assert read_turn('/f {"a": [1]}', 2) == Message("assistant", "", (ToolCall("call-2-0", "f", {"a": [1]}),))
    assert read_turn("/f", 0).calls == (ToolCall("call-0-0", "f", {}),)
    for text in ("/", "/ {}", "plain", "", "/usr/bin", "/usr/bin is a folder", "/f and so on"):
        assert read_turn(text, 0) == Message("assistant", text)


@pytest.mark.parametrize("arguments", ["{bad", "[1]", '{"a": }', "{" * 9])
def test_a_call_with_broken_arguments_is_a_slip_and_no_answer(folder, capsys, arguments):
    """S44: as a model's, and the episode goes on."""
    problem = f"expected the arguments of double as an object of JSON, got {arguments}"
    assert read_turn(f"/double {arguments}", 1).calls == (BadCall("call-1-0", problem),)
    lines = told(capsys, "mine.py:Say", "--agent", "scripted", "--say", f"/double {arguments}", "6")
    assert lines[2:4] == [f"assistant slips: {problem}", f"tool: error: {problem}"]
    assert lines[-1] == "finished; score: reward 1"


def test_an_option_given_twice_is_refused(folder, capsys):
    """The second would replace the first without a word."""
    said = refused(capsys, "mine.py:Say", "--agent", "scripted", "--say", "5", "--say", "6")
    assert "expected each setting once, got --say 2 times, in try" in said
    assert "--say A B" in said
    assert "got --max-turns 2 times, --max_turns 2 times" in refused(capsys, "mine.py:Say", "--max-turns=1", "--max_turns", "2")


def test_a_task_file_that_cannot_be_read_is_told(folder, capsys):
    said = refused(capsys, "mine.py:Say", "--tasks", "nofile.jsonl")
    assert "expected a file of rows, got 'nofile.jsonl': No such file or directory; name another file" in said
