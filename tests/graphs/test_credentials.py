"""A run whose tool uses a credential: what is written of it, and what taking it back does."""

import json
from pathlib import Path

import pytest

from graphs.cli import main

SECRET = "s3cr3t-7c1f-planted"
PROGRAM = '''
import numpy as np
from flow import Context, Drop, Failed, Graph
from graphs.cli import main
from stages.agents.sampling import SamplingConfig
from stages.agents.tool_agent import ToolAgent
from stages.envs.tool_env import ToolEnv
from stages.episodes import Episodes
from stages.policy import Sample
from stages.records import Episode, Message, Task, ToolCall
from stages.text.compact import CompactChat
from stages.tools.credentials import Credentials
from stages.tools.function import FunctionTool

KEYS = Credentials.from_environment(search="HEADRACE_TEST_KEY", mail="HEADRACE_TEST_MAIL")
MINE = KEYS.only("search")

def search(query: str) -> str:
    """Look something up."""
    secret = MINE.get("search")
    if query == "fail":
        raise OSError(f"refused by https://{secret}@host")
    if query.startswith("revoke"):
        main(["revoke", "runs/r", "search"])
    return f"found {query} with {secret}"

class Calls:
    """Calls the tool with the task's prompt, then answers."""
    context_length = 400

    def __init__(self, chat):
        self.chat = chat

    async def sample(self, request):
        if request.key[-1] == 1:
            ids = self.chat.write(Message("assistant", "done"))
        else:
            query = self.chat.decode(request.ids).split("<|user|>")[1].split("<|assistant|>")[0]
            ids = self.chat.write(Message("assistant", "", (ToolCall("c", "search", {"query": query}),)))
        return Sample(ids, np.full(len(ids), -0.5, np.float32), np.zeros(len(ids), np.int32), "stop")

    def release(self, session): ...

def keep(episode: Episode, context: Context) -> None:
    with open("runs/r/kept.txt", "a") as file:
        print(episode, file=file)

def searches() -> Graph:
    tool = FunctionTool(search, pool="search")
    chat = CompactChat([tool])
    sampling = SamplingConfig(max_tokens_per_turn=32, max_turns=2)
    episode = Episodes(Calls(chat), chat, ToolAgent(), lambda task: ToolEnv([tool]), sampling)
    graph = Graph("searches", pools={"search": 1})
    tasks = graph.source("tasks", [Task(f"t{i}", query) for i, query in enumerate(["one", "fail", "revoke", "two"])])
    episodes = graph.stage("episodes", episode, on_error=Drop())
    tasks >> episodes >> graph.sink("kept", keep)
    return graph
'''


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a run of four episodes, of which the third revokes the credential."""
    folder = tmp_path_factory.mktemp("credentials")
    (folder / "searches.py").write_text(PROGRAM)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("HEADRACE_TEST_KEY", SECRET)
        patch.setenv("HEADRACE_TEST_MAIL", SECRET + "-2")
        main(["run", "searches.py:searches", "--options.name", "r"])
    return folder / "runs" / "r"


def test_a_secret_is_nowhere_in_the_folder_of_a_run(run_folder: Path) -> None:
    files = [file for file in run_folder.rglob("*") if file.is_file()]
    assert {"audit.jsonl", "config.json", "run.pftrace", "summary.json"} <= {file.name for file in files}
    assert [file for file in files if SECRET.encode() in file.read_bytes()] == []
    # The search would find it: what stands in its place is there.
    assert b"[credential search]" in (run_folder / "kept.txt").read_bytes()


def test_every_call_of_a_run_has_its_rows(run_folder: Path) -> None:
    rows = [json.loads(line) for line in (run_folder / "audit.jsonl").read_text().splitlines()]
    assert [(row["task"], row["tool"], row["credentials"], row["outcome"]) for row in rows if row["outcome"] != "started"] == [
        ("t0", "search", ["search"], "answer"),
        ("t1", "search", ["search"], "failed"),
        ("t2", "search", ["search"], "answer"),
        ("t3", "search", [], "broken"),
    ]
    assert [row["task"] for row in rows if row["outcome"] == "started"] == ["t0", "t1", "t2", "t3"]
    assert {row["phase"] for row in rows} == {"searches"}
    assert rows[0]["arguments"] == '{"query": "one"}'


def test_an_episode_that_needs_a_revoked_credential_fails_and_says_why(run_folder: Path) -> None:
    rows = [json.loads(line) for line in (run_folder / "episodes.jsonl").read_text().splitlines()]
    assert [(row["status"], row["error"]) for row in rows] == [
        ("tool_error", "the environment's step raised RevokedError: the credential search was revoked")
    ]


def test_revoking_says_what_it_did(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["revoke", str(run_folder), "search"])
    assert capsys.readouterr().out == "revoked: search, for every use from now on\n"
    main(["revoke", str(run_folder), "serach"])
    assert "warning: no call of this run has used it so far; used were search" in capsys.readouterr().out
    for arguments, problem in (
        ([str(run_folder)], "expected a run and the name of a credential"),
        ([str(run_folder / "absent"), "search"], "expected the folder of a run"),
        ([str(run_folder), "../search"], "expected a name of letters"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(["revoke", *arguments])
        assert ended.value.code == 2
        assert problem in capsys.readouterr().err
