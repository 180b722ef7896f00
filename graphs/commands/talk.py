"""A conversation between a person and a policy, by token ids: what was sampled is never encoded again.

Not an episode: nothing is scored, recorded or trained, and a person may cut an answer short. The terminal is in ``chat.py``.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from stages.policy import Policy, SampleRequest
from stages.records import Message
from stages.text.chat import Chat

_UNREADABLE = "\ufffd"
"""What bytes of a character that is not whole yet read as."""


@dataclass(frozen=True)
class Answer:
    """How an answer went.

    Attributes:
        num_tokens: sampled tokens.
        first_s: seconds to the first token, reading the question in included.
        rest_s: seconds from the first token to the last.
        ended: by the policy, at the most tokens of an answer, or at the end of the context.
    """

    num_tokens: int
    first_s: float
    rest_s: float
    ended: Literal["stop", "length", "context"]

    @property
    def tokens_per_second(self) -> float | None:
        """Speed after the first token; ``None`` where there was no other."""
        return (self.num_tokens - 1) / self.rest_s if self.num_tokens > 1 else None


class Talk:
    """One conversation after another with one policy.

    Args:
        policy: samples the answers.
        chat: writes questions and reads answers.
        opening: the messages that a conversation begins with, from its first question.
        temperature: see ``SampleRequest``.
        max_tokens: most tokens of an answer.
        seed: with the place in the conversation it decides every random draw.
    """

    def __init__(
        self,
        policy: Policy,
        chat: Chat,
        opening: Callable[[str], Sequence[Message]],
        *,
        temperature: float,
        max_tokens: int,
        seed: int,
    ) -> None:
        self._policy, self._chat, self._opening = policy, chat, opening
        self._temperature, self._max_tokens, self._seed = temperature, max_tokens, seed
        self._number = self._turn = 0
        self.ids = np.zeros(0, np.int32)

    def restart(self) -> None:
        """Forget the conversation; the next question begins another."""
        self._policy.release(self._session)
        self._number, self._turn = self._number + 1, 0
        self.ids = np.zeros(0, np.int32)

    async def answer(self, question: str, say: Callable[[str], object]) -> Answer:
        """Sample the answer to a question. Cancelled, it ends the turn where it is: what was said stays said.

        Args:
            question: the user's message.
            say: called with each piece of text as soon as it is there.

        Raises:
            ValueError: the question does not fit what is left of the context; the conversation is as it was.
        """
        context = self._asked(question)
        sampled: list[int] = []
        try:
            return await self._sample(context, sampled, say)
        finally:
            self.ids = np.array([*context, *self._closed(sampled)], np.int32)
            self._turn += 1

    async def _sample(self, context: np.ndarray, sampled: list[int], say: Callable[[str], object]) -> Answer:
        budget = min(self._max_tokens, self._policy.context_length - len(context))
        began = first = time.monotonic()
        said, ended = "", False
        while not ended and len(sampled) < budget:
            sample = await self._policy.sample(self._request(np.array([*context, *sampled], np.int32)))
            first = first if sampled else time.monotonic()
            sampled += sample.ids.tolist()
            ended = sample.stop_reason == "stop"
            text = self._chat.decode(np.array(sampled[:-1] if ended else sampled, np.int32))
            if not text.endswith(_UNREADABLE) or ended or len(sampled) == budget:
                say(text[len(said) :])
                said = text
        how = "stop" if ended else "length" if len(sampled) == self._max_tokens else "context"
        return Answer(len(sampled), first - began, time.monotonic() - first, how)

    def _asked(self, question: str) -> np.ndarray:
        if len(self.ids):
            context = np.concatenate([self.ids, self._chat.extend([Message("user", question)])])
        else:
            context = self._chat.open(self._opening(question), ())
        room = self._policy.context_length - len(context)
        if room < 1:
            raise ValueError(
                f"expected a question that leaves room for an answer; got a talk of {len(context)} tokens with it, in a "
                f"context of {self._policy.context_length}; start over with /new, or give a longer --context"
            )
        return context

    def _closed(self, sampled: list[int]) -> list[int]:
        """The turn as the format closes it: an answer that was cut, or ended by another token, gets the format's own."""
        end = self._chat.stop_ids[0]
        kept = sampled[:-1] if sampled and sampled[-1] in self._chat.stop_ids else sampled
        return [*kept, end]

    def _request(self, ids: np.ndarray) -> SampleRequest:
        """The next token. Draws are a function of key and position: the tokens are those that one request would have given."""
        return SampleRequest(
            ids=ids,
            max_tokens=1,
            stop_ids=self._chat.stop_ids,
            temperature=self._temperature,
            key=(self._seed, self._number, 0, 0, self._turn),
            session=self._session,
        )

    @property
    def _session(self) -> str:
        return f"talk-{self._number}"
