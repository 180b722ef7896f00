"""Against a server made with the real package, in a process of its own.

HEADRACE_OPENENV_PYTHON names an interpreter that has it; ``make test-extras`` sets it.
"""

import os
import random
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import anyio
import psutil
import pytest

from stages.envs.adapters.open_env import OpenEnv, OpenEnvError
from stages.records import Message, Status, Task, ToolCall

pytest.importorskip("websockets")
pytestmark = [pytest.mark.extra, pytest.mark.slow]

SERVER = Path(__file__).parent / "servers" / "open_env_server.py"
KEY = (1, 2, 3, 0)
TASK = Task("t", "Guess.", extra={"seed": 7})
SECRET = random.Random(7).randint(1, 100)


@pytest.fixture(scope="module")
def url():
    python = os.environ.get("HEADRACE_OPENENV_PYTHON") or (sys.executable if find_spec("openenv") else None)
    if python is None:
        pytest.skip("needs an interpreter with openenv, named by HEADRACE_OPENENV_PYTHON")
    with subprocess.Popen([python, SERVER], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        finally:
            server.kill()


def number(text):
    found = re.findall(r"\d+", text)
    if not found:
        raise ValueError("no number in it")
    return {"number": int(found[-1])}


@pytest.fixture
def play(hold):
    def played(url, turns, task=TASK, key=KEY, **knobs):
        opening, replies, score = hold(OpenEnv(url, **{"action": number, **knobs}), task, turns, key)
        return opening.messages[0].content, replies, score

    return played


def test_a_session_is_played_to_its_end_and_its_rewards_are_summed(play, url):
    opening, replies, score = play(url, [str(SECRET - 1), f"no, {SECRET + 1}", str(SECRET)])
    assert opening == "Guess.\n\nfrom 1 to 100"
    assert [reply.messages[0].content for reply in replies] == ["higher", "lower", "right"]
    assert [reply.end for reply in replies] == [None, None, Status.FINISHED]
    assert score == {"reward": 1.0 - 2 / 8}


def test_a_limit_of_the_environment_truncates_and_keeps_the_last_observation(play, url):
    """S42."""
    _, replies, score = play(url, [str(SECRET + 1)] * 9)
    assert (len(replies), replies[-1].end) == (7, Status.TRUNCATED_TURNS)
    assert replies[-1].messages[0].content == f"text: it was {SECRET}\ntruncated: true"
    assert score == {"reward": -6 / 8}
    assert sum(reply.reward for reply in replies) == -6 / 8


def test_what_is_no_action_is_answered_by_us_or_by_the_server_and_bounded_in_number(play, url):
    """S44, S53."""
    call = Message("assistant", "5", (ToolCall("c", "guess", {}),))
    _, replies, score = play(url, ["hm", call, "5"], action=lambda text: number(text) if text == "hm" else {"numbr": 5})
    assert replies[0].messages[0].content == "error: expected an action (no number in it), got 'hm'"
    assert [message.role for message in replies[1].messages] == ["tool", "user"]
    assert "VALIDATION_ERROR: number: Field required" in replies[2].messages[0].content
    assert (replies[2].end, replies[2].reason) == (Status.TRUNCATED_TURNS, "3 invalid actions in a row")
    assert score is None


def test_a_failure_of_the_server_is_raised(play, url):
    with pytest.raises(OpenEnvError, match=r"got EXECUTION_ERROR: the number zero broke it, from the OpenEnv server at ws://"):
        play(url, ["0"])


def test_a_full_server_is_waited_for_and_then_told_of_and_closing_leaves_no_socket(url):
    async def run():
        envs = [OpenEnv(url, action=number) for _ in range(3)]
        for env in envs:
            await env.reset(TASK, KEY)
        full = OpenEnv(url, action=number, room_s=0.1)
        with pytest.raises(OpenEnvError, match="CAPACITY_REACHED"):
            await full.reset(TASK, KEY)
        await full.close()
        late = OpenEnv(url, action=number)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(late.reset, TASK, KEY)
            await anyio.sleep(0.1)
            await envs[0].close()
            await envs[0].close()
        assert (await late.step(Message("assistant", str(SECRET)))).end is Status.FINISHED
        for env in [*envs, late]:
            await env.close()

    before = {(at.laddr, at.raddr) for at in psutil.Process().net_connections()}
    anyio.run(run)
    assert {(at.laddr, at.raddr) for at in psutil.Process().net_connections()} <= before


def test_without_a_seed_the_key_decides_and_the_tasks_own_settings_reach_the_server(play, url):
    task = Task("t", "", extra={"reset": {"top": 2}})
    firsts = [play(url, ["1"], task, (1, 2, 3, retry)) for retry in (0, 0, 1, 2, 3, 4, 5, 6, 7)]
    assert firsts[0][0] == "from 1 to 2"
    assert firsts[0] == firsts[1]
    assert len({str(first[1]) for first in firsts}) == 2


def test_a_server_that_is_not_there_is_told_with_its_address(play):
    with pytest.raises(OpenEnvError, match=r"expected an observation; got .*from the OpenEnv server at ws://127.0.0.1:9/ws"):
        play("http://127.0.0.1:9", [])
