"""An episode whose chat forks: what is asked of the policy, what is kept, and what is trained."""

import asyncio

import msgspec
import numpy as np

from stages.advantages.timeline import trajectories
from stages.agents.agent import Setting
from stages.agents.model_agent import ModelAgent
from stages.agents.sampling import SamplingConfig
from stages.batches.pack import episode_row, pack_group
from stages.envs.environment import Opening, Reply
from stages.losses.tokens import Needs
from stages.policy import Sample
from stages.records import Episode, Group, Message, Row, Status, Task
from stages.text.compact import CompactChat
from stages.text.transcript import Transcript

CHAT = CompactChat()
FIRST, SECOND = (CHAT.write(Message("assistant", text)) for text in ("thinking 6", "7"))


class Forgetful:
    """The compact chat, but of a turn it remembers only what comes behind ``thinking``."""

    stop_ids, vocab_size = CHAT.stop_ids, CHAT.vocab_size
    open, write, extend, read, decode = CHAT.open, CHAT.write, CHAT.extend, CHAT.read, CHAT.decode

    def fork(self, transcript, replies, tools):
        said = [msgspec.structs.replace(m, content=m.content.removeprefix("thinking ")) for m in transcript.messages]
        return self.open([*said, *replies], tools)


class Script:
    """Says its turns in order and keeps what it was asked."""

    def __init__(self, *turns, context_length=64):
        self.turns = list(turns)
        self.context_length = context_length
        self.asked = []

    async def sample(self, request):
        self.asked.append(CHAT.decode(request.ids))
        ids = self.turns[len(self.asked) - 1]
        return Sample(ids, np.full(len(ids), -0.5, np.float32), np.full(len(ids), 3, np.int32), "stop")

    def release(self, session):
        pass

    def abort(self, session):
        pass


class Nodding:
    """Asks once more, then is content."""

    def __init__(self):
        self.replies = [Reply((Message("user", "more"),)), Reply((), end=Status.FINISHED)]

    async def step(self, message):
        return self.replies.pop(0)


def run(policy):
    transcript = Transcript()
    setting = Setting(policy, Forgetful(), Nodding(), Opening((Message("user", "2*3"),)), SamplingConfig(), (0, 0, 0, 0), "s")
    return asyncio.run(ModelAgent().run(setting, transcript)), transcript


def test_the_next_turn_is_sampled_after_the_new_row_alone():
    """S56."""
    policy = Script(FIRST, SECOND)
    ending, transcript = run(policy)
    assert ending.status is Status.FINISHED
    assert policy.asked == [
        "<|bos|><|user|>2*3<|assistant|>",
        "<|bos|><|user|>2*3<|assistant|>6<|end|><|user|>more<|assistant|>",
    ]
    assert transcript.ids()[transcript.mask()].tolist() == [*FIRST.tolist(), *SECOND.tolist()]
    begin = len(CHAT.open([Message("user", "2*3")], [])) + len(FIRST)
    assert transcript.rows() == (Row(0, begin), Row(begin, len(transcript), forked=True))


def test_a_new_row_has_the_whole_context_to_itself():
    context_length = len(CHAT.open([Message("user", "2*3")], [])) + len(FIRST) + 1
    ending, transcript = run(Script(FIRST, SECOND, context_length=context_length))
    assert ending.status is Status.FINISHED
    assert transcript.row_length <= context_length < len(transcript)


def test_each_row_is_trained_apart_and_forks_are_counted():
    """S56: the same advantage for all rows; together they have the sampled tokens, each once."""
    _, transcript = run(Script(FIRST, SECOND))
    episode = Episode(
        task=Task("t", "2*3"),
        birth=4,
        member=0,
        retry=0,
        ids=transcript.ids(),
        mask=transcript.mask(),
        logprobs=transcript.logprobs(),
        versions=transcript.versions(),
        turns=tuple(transcript.turns),
        messages=tuple(transcript.messages),
        status=Status.FINISHED,
        rows=transcript.rows(),
    )
    advantages = (0.5 * episode.mask).astype(np.float32)
    rows = pack_group(Group(4, (episode,), (advantages,), live=(True,)), Needs(), 200).segments
    assert [row.ids[row.mask].tolist() for row in rows] == [FIRST.tolist(), SECOND.tolist()]
    assert [CHAT.decode(row.ids[~row.mask]) for row in rows] == [
        "<|bos|><|user|>2*3<|assistant|>",
        "<|bos|><|user|>2*3<|assistant|>6<|end|><|user|>more<|assistant|>",
    ]
    assert {float(value) for row in rows for value in row.advantages[row.mask]} == {0.5}
    (own,) = trajectories(msgspec.structs.replace(episode, reward=1.0))
    assert own.turns.tolist() == [0] * len(FIRST) + [1] * len(SECOND), "a fork goes on with the trajectory"
    assert (episode_row(episode).num_forks, episode_row(episode).num_sampled) == (1, len(FIRST) + len(SECOND))
