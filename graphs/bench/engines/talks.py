"""What every engine is asked: talks of two turns, drawn in every way a request can ask for. Values and one coroutine."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from graphs.parts import Parts
from stages.policy import Sample, SampleRequest
from stages.records import Message, Weights

TURNS = 2


class Candidate(Protocol):
    """An engine that is compared: a ``stages.policy.Policy`` that takes weights."""

    async def load(self, weights: Weights, version: int) -> None:
        """Sample with these from now on."""
        ...

    async def sample(self, request: SampleRequest) -> Sample:
        """See ``Policy.sample``."""
        ...

    def release(self, session: str) -> None:
        """See ``Policy.release``."""
        ...


@dataclass(frozen=True)
class Talk:
    """One conversation: a prompt, a turn, a reply that is the same for all, and another turn.

    Attributes:
        index: its number, which enters the random keys.
        prompt: int32 [T].
        reply: int32 [R]: what comes between the turns.
        max_tokens: of a turn.
        stop_ids: end a turn.
        temperature: 0 for the most likely token each time.
        more: further fields of its requests: what truncates, and stop strings.
    """

    index: int
    prompt: np.ndarray
    reply: np.ndarray
    max_tokens: int
    stop_ids: tuple[int, ...]
    temperature: float
    more: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def greedy(self) -> bool:
        """Whether any engine must say the same, whatever its rule of the draw."""
        return self.temperature == 0


Turns = tuple[Sample, ...]
"""What was sampled in a talk, turn by turn."""

_WAYS: Sequence[tuple[float, dict[str, Any]]] = (
    (0.0, {}),
    (1.0, {}),
    (0.7, {}),
    (1.0, {"top_k": 8, "top_p": 0.9, "min_p": 0.02}),
    (1.0, {"stop_strings": ("1", "a")}),
)
"""(temperature, further fields) that talks take in turns."""


def talks_of(parts: Parts, number: int, max_tokens: int) -> list[Talk]:
    """The first tasks of the program as talks; every second one is greedy.

    Args:
        parts: tasks and chat.
        number: of talks.
        max_tokens: most of a turn.
    """
    reply = parts.chat.extend([Message("tool", "42", call_id="call-0-0")])
    ways = [_WAYS[0] if index % 2 == 0 else _WAYS[1 + index // 2 % (len(_WAYS) - 1)] for index in range(number)]
    return [
        Talk(index, parts.chat.open(parts.opening(task), parts.tools), reply, max_tokens, parts.chat.stop_ids, *way)
        for index, (task, way) in enumerate(zip(parts.train, ways, strict=False))
    ]


async def held(policy: Candidate, talk: Talk, name: str) -> Turns:
    """Hold a talk.

    Args:
        policy: samples it.
        talk: what is asked.
        name: of its session, of which there is no other at the time.
    """
    context, turns = talk.prompt, list[Sample]()
    session = f"{name}-{talk.index}"
    try:
        for turn in range(TURNS):
            key = (0, talk.index, 0, 0, turn)
            request = SampleRequest(
                context, talk.max_tokens, talk.stop_ids, talk.temperature, key, session, **talk.more
            )  # fmt: skip
            turns.append(await policy.sample(request))
            context = np.concatenate([context, turns[-1].ids, talk.reply]).astype(np.int32)
    finally:
        policy.release(session)
    return tuple(turns)


def context_of(talk: Talk, turns: Turns, turn: int) -> np.ndarray:
    """The context that a turn of a talk began with, int32 [T]."""
    before = [part for sample in turns[:turn] for part in (sample.ids, talk.reply)]
    return np.concatenate([talk.prompt, *before]).astype(np.int32)
