"""Demonstrations as token episodes, so that supervised training goes through the same packing as reinforcement learning.

The mask comes from the pieces the episode is built of, never from marks in a template, so it cannot be empty by accident. Not a
loader (``stages/tasks/examples.py`` is).
"""

import itertools
from collections.abc import Sequence

import numpy as np

from flow import Context
from stages.records import Episode, Example, Group, Message, Status, Task
from stages.text.chat import Chat, ToolSpec
from stages.text.transcript import Transcript


class Demonstrate:
    """Stage: examples in, one group out, each example an episode whose assistant turns are the targets."""

    def __init__(self, chat: Chat, tools: Sequence[ToolSpec] = ()):
        """Keep the format and the tools.

        Args:
            chat: how conversations are written.
            tools: the tools of every example.
        """
        self._chat = chat
        self._tools = tuple(tools)

    async def __call__(self, examples: tuple[Example, ...], context: Context) -> Group:
        """Write the examples as one group with advantage 1.

        Raises:
            ValueError: an example has no assistant message to learn from, or cannot be written.
        """
        episodes = tuple(
            demonstrate(example, self._chat, self._tools, birth=context.birth, member=member)
            for member, example in enumerate(examples)
        )
        advantages = tuple(np.where(episode.mask, np.float32(1.0), np.float32(0.0)) for episode in episodes)
        return Group(context.birth, episodes, advantages, live=(True,) * len(episodes))


def demonstrate(example: Example, chat: Chat, tools: Sequence[ToolSpec], *, birth: int, member: int) -> Episode:
    """One example as an episode: mask True on the ids of assistant messages, NaN log-probabilities, versions -1.

    Raises:
        ValueError: the example has no assistant message, begins with one, or does not end with one.
    """
    opening, rounds = _rounds(example)
    transcript = Transcript()
    transcript.give(chat.open(opening, tools), opening)
    for index, (said, replies) in enumerate(rounds):
        ids = chat.write(said)
        unknown = np.full(len(ids), np.nan, np.float32), np.full(len(ids), -1, np.int32)
        transcript.sample(ids, *unknown, said, "stop", model_s=None)
        if index + 1 < len(rounds):
            transcript.give(chat.extend(replies, said=said), replies)
    prompt = next((message.content for message in opening if message.role == "user"), "")
    return Episode(
        task=Task(example.id, prompt, source="demonstrations"),
        birth=birth,
        member=member,
        retry=0,
        ids=transcript.ids(),
        mask=transcript.mask(),
        logprobs=transcript.logprobs(),
        versions=transcript.versions(),
        turns=tuple(transcript.turns),
        messages=example.messages,
        status=Status.FINISHED,
    )


def _rounds(example: Example) -> tuple[tuple[Message, ...], list[tuple[Message, tuple[Message, ...]]]]:
    """The messages before the first assistant turn, and each assistant turn with the replies to it."""
    spoken = [index for index, message in enumerate(example.messages) if message.role == "assistant"]
    follows_itself = any(after - before == 1 for before, after in itertools.pairwise(spoken))
    if not spoken or spoken[0] == 0 or spoken[-1] != len(example.messages) - 1 or follows_itself:
        raise ValueError(
            "expected a prompt, then assistant messages with replies between them, an assistant message last; got roles "
            f"{[message.role for message in example.messages]}, in example {example.id!r}; correct the example"
        )
    stops = [*spoken[1:], len(example.messages)]
    rounds = [(example.messages[start], example.messages[start + 1 : stop]) for start, stop in zip(spoken, stops, strict=True)]
    return example.messages[: spoken[0]], rounds
