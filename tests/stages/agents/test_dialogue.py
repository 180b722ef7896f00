"""Several roles in one episode: a row for each, trained as declared, and no token in a context it was not sampled in."""

import asyncio

import msgspec
import numpy as np
import pytest

from flow.testing import context
from stages.advantages.timeline import trajectories
from stages.agents.dialogue import Dialogue, Role
from stages.agents.sampling import SamplingConfig
from stages.batches.pack import pack_group
from stages.envs.custom import CustomEnv, over
from stages.episodes import Episodes
from stages.losses.tokens import Needs
from stages.records import Batch, Episode, Group, Message, Status, Task
from stages.rewards.own import own_words
from stages.scripted import ScriptedPolicy
from stages.text.compact import CompactChat

CHAT = CompactChat()
ROLES = (Role("asker", "ask"), Role("doubter", "doubt", trained=False))


class Referee(CustomEnv):
    """Ends when somebody agrees; speaks only to who asks for help."""

    async def reset(self, task, key):
        return [Message("system", "play"), Message("user", task.prompt)]

    async def step(self, message):
        if message.content == "agreed":
            return over()
        return "no help" if message.content == "help" else []

    def score(self):
        return 1.0


class Spy(ScriptedPolicy):
    """Notes what each session reads, and which are released."""

    def __init__(self, *said):
        super().__init__(CHAT, said)
        self.read, self.released = [], []

    async def sample(self, request):
        self.read.append((request.session.rpartition("/")[2], request.key[-1], CHAT.decode(request.ids)))
        return await super().sample(request)

    def release(self, session):
        self.released.append(session.rpartition("/")[2])


def play(*said, roles=ROLES, **sampling):
    policy = Spy(*said)
    stage = Episodes(policy, CHAT, Dialogue(roles), lambda task: Referee(), SamplingConfig(**sampling))
    return asyncio.run(stage(Task("t", "why?"), context())), policy


def test_each_role_reads_its_own_conversation_and_the_others_as_its_user():
    episode, policy = play("because", "really", "agreed")
    begin = "<|bos|><|system|>{}<|user|>why?"
    asker = begin.format("ask") + "<|assistant|>"
    assert policy.read == [
        ("asker", 0, asker),
        ("doubter", 1, begin.format("doubt") + "<|user|>because<|assistant|>"),
        ("asker", 2, asker + "because<|end|><|user|>really<|assistant|>"),
    ]
    assert episode.status is Status.FINISHED
    assert {"asker", "doubter"} <= set(policy.released)
    assert [message.content for message in episode.messages] == ["play", "why?", "because", "really", "agreed"]


def test_the_record_is_flat_and_its_rows_are_what_each_role_saw():
    episode, policy = play("because", "really", "agreed")
    assert [(row.role, row.trained) for row in episode.rows] == [("asker", True), ("doubter", False)]
    assert episode.rows[0].start == 0
    assert episode.rows[0].stop == episode.rows[1].start
    assert episode.rows[1].stop == len(episode.ids) == len(episode.mask) == len(episode.logprobs) == len(episode.versions)
    for row in episode.rows:
        seen = CHAT.decode(episode.ids[row.start : row.stop])
        assert all(seen.startswith(read) for role, _, read in policy.read if role == row.role)
    assert [CHAT.decode(episode.ids[turn.start : turn.stop]) for turn in episode.turns] == [
        "because<|end|>", "agreed<|end|>", "really<|end|>",
    ]  # fmt: skip
    assert episode.num_sampled - episode.num_untrained == len("because") + len("agreed") + 2


def packed(episode: Episode) -> Batch:
    advantages = episode.mask.astype(np.float32)
    return pack_group(Group(0, (episode,), (advantages,), live=(True,)), Needs(), 200)


def test_only_the_rows_of_trained_roles_become_segments():
    episode, _ = play("because", "really", "agreed")
    segments = packed(episode).segments
    assert [CHAT.decode(segment.ids[segment.mask]) for segment in segments] == ["because<|end|>agreed<|end|>"]
    both, _ = play("because", "really", "agreed", roles=(Role("a"), Role("b")))
    assert len(packed(both).segments) == 2


def test_what_the_environment_says_is_heard_in_place_of_what_was_said():
    _, policy = play("help", "agreed")
    assert policy.read[1][2].endswith("<|user|>why?<|user|>no help<|assistant|>")


def test_turns_are_counted_over_all_roles():
    episode, policy = play("because", max_turns=3)
    assert (episode.status, episode.error) == (Status.TRUNCATED_TURNS, "no answer in 3 turns")
    assert len(policy.read) == len(episode.turns) == 3


@pytest.mark.parametrize("roles", [[Role("a")], [Role("a"), Role("a")], [Role("a", trained=False), Role("b", trained=False)]])
def test_roles_that_make_no_dialogue_are_refused(roles):
    with pytest.raises(ValueError, match=r"expected two roles or more, .* at least one of them trained"):
        Dialogue(roles)


def test_the_divisor_of_a_loss_counts_trained_rows_only():
    episode, _ = play("because", "really", "agreed")
    assert packed(episode).divisor == episode.num_sampled - len("really") - 1


def test_each_trained_role_earns_the_whole_reward_at_its_own_last_token():
    """The asker's two turns are one trajectory; the doubter's is another, where it is trained."""
    both, _ = play("because", "really", "agreed", roles=(Role("a"), Role("b")))
    asker, other = trajectories(msgspec.structs.replace(both, reward=2.0))
    assert [CHAT.decode(both.ids[own.places]) for own in (asker, other)] == ["because<|end|>agreed<|end|>", "really<|end|>"]
    assert [(own.rewards[-1], own.rewards.sum()) for own in (asker, other)] == [(2.0, 2.0)] * 2
    one, _ = play("because", "really", "agreed")
    (alone,) = trajectories(msgspec.structs.replace(one, reward=2.0))
    assert alone.turns.tolist() == [0] * len("because ") + [1] * len("agreed ")


def test_a_reward_sees_what_all_roles_said_and_nothing_else():
    episode, _ = play("help", "agreed")
    assert "no help" in [message.content for message in episode.messages]
    assert [message.content for message in own_words(episode).messages] == ["help", "agreed"]
