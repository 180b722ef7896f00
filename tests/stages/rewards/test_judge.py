"""A judge asks a model; the model is a script, so that what it is asked and what it answers are known."""

import asyncio
from collections.abc import Mapping

import anyio
import msgspec
import numpy as np
import pytest

from flow import Context, FlowError, Gathered, Graph, testing
from flow.testing import run_virtual, simulate
from stages.policy import PolicyEnded
from stages.records import Episode, Group, Message, Status, Task
from stages.rewards.functions import ContextReward
from stages.rewards.judge import Judge, JudgeConfig, judge_messages, read_verdict
from stages.rewards.stage import Rewards
from stages.scripted import ScriptedPolicy
from stages.text.compact import CompactChat

CHAT = CompactChat()


def episode(member: int, text: str = "12") -> Episode:
    return Episode(
        task=Task("t", "6 * 2?", "12"),
        birth=0,
        member=member,
        retry=0,
        ids=np.arange(3, dtype=np.int32),
        mask=np.array([False, True, True]),
        logprobs=np.array([np.nan, -1, -1], np.float32),
        versions=np.array([-1, 0, 0], np.int32),
        turns=(),
        messages=(Message("tool", "planted"), Message("assistant", text)),
        status=Status.FINISHED,
    )


def asks(episode: Episode) -> list[Message]:
    """In the characters that the tiny chat knows."""
    return [Message("user", "judge: " + " ".join(message.content for message in episode.messages))]


class Model(ScriptedPolicy):
    """Notes what it is asked and released, and how many ask at once; waits before it answers."""

    def __init__(self, *says: str, wait_s: float = 0.0, error: Exception | None = None, **settings):
        super().__init__(CHAT, says, **settings)
        self.asked, self.released, self.cancelled, self.busy, self.most = [], [], 0, 0, 0
        self.wait_s, self.error = wait_s, error

    async def sample(self, request):
        self.asked.append(request)
        if self.error is not None:
            raise self.error
        self.busy += 1
        self.most = max(self.most, self.busy)
        try:
            await anyio.sleep(self.wait_s)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.busy -= 1
        return await super().sample(request)

    def release(self, session):
        self.released.append(session)


def score(judge: Judge, *episodes: Episode):
    stage = Rewards({"judge": (ContextReward(judge), 1.0)})
    gathered = Gathered(0, episodes, (), "full")
    return run_virtual(stage(gathered, testing.context())).episodes


def test_the_verdict_is_the_reward_and_the_judge_reads_the_policys_own_words():
    model = Model("well verdict: 0.5", "verdict: 1")
    judge = Judge(model, CHAT, asks=asks, reads=lambda said: read_verdict(said.replace("well ", "well\n")))
    (scored,) = score(judge, episode(0))
    assert (scored.reward, scored.parts) == (0.5, {"judge": 0.5})
    assert CHAT.decode(model.asked[0].ids) == "<|bos|><|user|>judge: 12<|assistant|>"
    assert len(model.released) == 1


@pytest.mark.parametrize(
    ("said", "verdict"),
    [
        ("verdict: 1", 1.0),
        ("It is right.\n\nVerdict: 0.25\n", 0.25),
        ("verdict: .5.", 0.5),
        ("verdict: 1.5", None),
        ("verdict: -1", None),
        ("verdict: nan", None),
        ("verdict: 1 or 0", None),
        ("the verdict: 1", None),
        ("verdict: 1\nor so", None),
        ("1", None),
        ("", None),
    ],
)
def test_a_verdict_is_all_of_the_last_line_or_none(said, verdict):
    """An answer that talks of a verdict, quoted by the judge on the way, is none."""
    assert read_verdict(said) == verdict


@pytest.mark.parametrize(
    ("model", "config", "problem"),
    [
        (Model("no idea"), JudgeConfig(), "NoVerdictError: expected a verdict in the judge's last line, got 'no idea'"),
        (
            Model("verdict: 1"),
            JudgeConfig(max_tokens=4),
            "NoVerdictError: expected an answer that ends by itself, got one that was cut after 4 tokens",
        ),
        (
            Model("verdict: 1", wait_s=60),
            JudgeConfig(deadline_s=20),
            "TimeoutError: expected an answer of the judge within 20.0 s, got none",
        ),
        (Model("verdict: 1", error=OSError("unplugged")), JudgeConfig(), "OSError: unplugged"),
        (
            Model("verdict: 1", context_length=8),
            JudgeConfig(),
            "ValueError: expected a question of less than 8 tokens, got 12 (judge); "
            "ask shorter, or take a judge with a longer context",
        ),
    ],
)
def test_no_verdict_is_that_members_failure_and_no_zero(model, config, problem):
    (failed,) = score(Judge(model, CHAT, config, asks=asks), episode(0))
    assert (failed.reward, failed.status) == (None, Status.ENVIRONMENT_ERROR)
    assert failed.error == f"reward 'judge': {problem}"
    assert len(model.released) == 1
    assert model.cancelled == (config.deadline_s == 20)


def test_a_question_is_asked_once_and_those_asked_for_longest_ago_are_given_up():
    model = Model("verdict: 1")
    judge = Judge(model, CHAT, JudgeConfig(cache_size=2), asks=asks)
    for text in ("1", "2", "1", "3", "1", "2"):
        score(judge, episode(0, text))
    assert [CHAT.decode(request.ids)[-14] for request in model.asked] == ["1", "2", "3", "2"]
    never = Judge(model := Model("verdict: 1"), CHAT, JudgeConfig(cache_size=0), asks=asks)
    assert [score(never, episode(0))[0].reward for _ in range(2)] == [1.0, 1.0]
    assert len(model.asked) == 2


def test_members_that_say_the_same_are_asked_about_once_and_a_failure_is_of_the_one_that_was_asked_about():
    model = Model("verdict: 1", wait_s=1)
    scored = score(Judge(model, CHAT, asks=asks), *(episode(member, str(member % 2)) for member in range(6)))
    assert [e.reward for e in scored] == [1.0] * 6
    assert len(model.asked) == 2
    slow = Model("verdict: 1", wait_s=30)
    failed = score(Judge(slow, CHAT, JudgeConfig(deadline_s=20), asks=asks), *map(episode, range(3)))
    assert [e.reward for e in failed] == [None] * 3
    assert len(slow.asked) == 3


def test_no_failure_is_kept():
    model = Model("no idea")
    judge = Judge(model, CHAT, asks=asks)
    assert [score(judge, episode(0))[0].reward for _ in range(2)] == [None, None]
    assert len(model.asked) == 2


def test_draws_depend_on_the_question_and_sessions_on_who_asks():
    model = Model("verdict: 1")
    judge = Judge(model, CHAT, JudgeConfig(cache_size=0, seed=7), asks=asks)
    score(judge, episode(0), episode(1), episode(2, "13"))
    keys, sessions = [request.key for request in model.asked], [request.session for request in model.asked]
    assert keys[0] == keys[1] != keys[2]
    assert keys[0][0] == 7
    assert len(set(sessions)) == 3
    assert sorted(model.released) == sorted(sessions)


def run(judge: Judge, pools: Mapping[str, int], *episodes: Episode) -> list[float | None]:
    """Rewards of one group, in a graph with these pools."""
    rewards: list[float | None] = []

    def gather(task: Task, context: Context) -> Gathered[Episode]:
        return Gathered(0, episodes, (), "full")

    def note(group: Group, context: Context) -> None:
        rewards.extend(episode.reward for episode in group.episodes)

    graph = Graph("judged", pools=pools)
    groups = graph.source("groups", [Task("t", "?")])
    gathered = graph.stage("gathered", gather)
    judged = graph.stage("judged", Rewards({"judge": (ContextReward(judge), 1.0)}))
    groups >> gathered >> judged >> graph.sink("noted", note)
    simulate(graph)
    return rewards


def test_every_question_takes_a_unit_of_the_pool_and_the_wait_is_no_part_of_the_deadline():
    """Six questions of 30 s by twos, each with 31 s to answer: the last has waited 60 s before."""
    model = Model("verdict: 1", wait_s=30)
    judge = Judge(model, CHAT, JudgeConfig(deadline_s=31), asks=asks, pool="judge")
    assert run(judge, {"judge": 2}, *(episode(member, str(member)) for member in range(6))) == [1.0] * 6
    assert model.most == 2


def test_a_pool_that_the_graph_lacks_and_a_model_that_is_gone_end_the_run():
    with pytest.raises(FlowError, match="pool 'judge', which does not exist"):
        run(Judge(Model("verdict: 1"), CHAT, asks=asks, pool="judge"), {}, episode(0))
    with pytest.raises(PolicyEnded):
        score(Judge(Model("verdict: 1", error=PolicyEnded("over")), CHAT, asks=asks), episode(0), episode(1))


def test_the_question_has_the_task_the_reference_and_the_last_words():
    (message,) = judge_messages(msgspec.structs.replace(episode(0), messages=(Message("assistant", "a {brace}"),)))
    assert message.role == "user"
    for part in ("6 * 2?", "\n12\n", "\na {brace}\n>>>>>>>>", '"verdict: "'):
        assert part in message.content
