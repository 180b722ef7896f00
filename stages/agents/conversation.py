"""One row of tokens as an agent sees it: sample a turn, ask the environment, hear what was said, until somebody ends it.

Not an agent: those decide what is said to whom. Budgets are kept here, whatever an agent does. A turn gets what is left of the
context; a turn that runs into its budget ends the episode as truncated by length and nothing in it is executed; an answer that
is already in keeps the episode finished, however little room is left after it. A turn that stopped on a stop string, without a
stop token, gets its end token from the chat once the conversation goes on: given, not sampled.
"""

from collections.abc import Callable, Sequence

import anyio
import msgspec
import numpy as np

from stages.agents.agent import Ending, Setting
from stages.agents.guards import EpisodeError
from stages.envs.environment import Reply
from stages.policy import Sample, SampleRequest
from stages.records import Message, Status
from stages.text.chat import ToolSpec
from stages.text.transcript import Transcript

ReadTurn = Callable[[np.ndarray, int], Message]
"""Sampled ids and the number of the turn -> the turn as a message."""


class Ended(Exception):
    """The episode is over. Raised through an agent, which has nothing left to do.

    Attributes:
        ending: how.
    """

    def __init__(self, ending: Ending):
        super().__init__(f"{ending.status}: {ending.reason}")
        self.ending = ending


class TurnCount:
    """Turns sampled in an episode so far, by whichever role."""

    def __init__(self) -> None:
        self.taken = 0


class Conversation:
    """What an agent does with one row of tokens."""

    def __init__(self, setting: Setting, transcript: Transcript, turns: TurnCount | None = None):
        """Begin.

        Args:
            setting: what there is to work with.
            transcript: an empty one.
            turns: of the episode, where it has other conversations too; ``None`` for its only one.
        """
        self.setting = setting
        self.transcript = transcript
        self._turns = turns or TurnCount()
        self._tools: Sequence[ToolSpec] = ()
        self._said: Message | None = None

    @property
    def is_last_turn(self) -> bool:
        """Whether the turn that was sampled last is the last one there is."""
        return self._turns.taken >= self.setting.sampling.max_turns

    def open(self, messages: Sequence[Message] | None = None, tools: Sequence[ToolSpec] | None = None) -> None:
        """Give the first tokens.

        Args:
            messages: what is said first; ``None`` takes the environment's opening.
            tools: what is shown; ``None`` takes the environment's.

        Raises:
            ValueError: a message cannot be written in the chat's format.
        """
        opening = self.setting.opening
        said = opening.messages if messages is None else tuple(messages)
        self._tools = opening.tools if tools is None else tools
        self.transcript.give(self.setting.chat.open(said, self._tools), said)

    def read(self, ids: np.ndarray, turn: int) -> Message:
        """A turn as the chat reads it, calls and all. See ``Chat.read``."""
        return self.setting.chat.read(ids, turn, self._tools)

    async def sample(self, read: ReadTurn | None = None) -> Message:
        """Sample one turn.

        Args:
            read: how the turn becomes a message; ``None`` reads it as the chat does, calls and all.

        Raises:
            Ended: there is no turn or no room left, or the turn was cut.
            EpisodeError: the policy failed; what it gave of the turn is kept.
        """
        turn = self._turns.taken
        if self.is_last_turn:
            raise self.out_of_turns()
        room = self._room()
        if room < 1:
            raise _too_long(f"no room for turn {turn + 1} after {self.transcript.row_length} tokens")
        self._turns.taken += 1
        message, complete = await self._sample_turn(turn, room, read or self.read)
        self._said = message
        if not complete:
            raise _too_long(f"turn {turn + 1} was cut after {self.transcript.turns[-1].stop} tokens")
        return message

    async def step(self, message: Message) -> Reply:
        """Have the environment answer a turn.

        Returns:
            The reply, its answers in the order of the calls.

        Raises:
            Ended: the environment ended the episode. Its last words are in the record; where it cut the episode short, they are
                in the tokens too, as far as they fit.
            ValueError: the replies do not answer the turn's calls, each once.
        """
        started = anyio.current_time()
        reply = await self.setting.env.step(message)
        self.transcript.answered(anyio.current_time() - started, reply.reward)
        if reply.end is None:
            return msgspec.structs.replace(reply, messages=in_call_order(message, reply.messages))
        if reply.end.rule.end == "truncated":
            self._last_words(reply.messages)
        else:
            self.transcript.messages.extend(reply.messages)
        raise Ended(Ending(reply.end, reply.reason))

    def hear(self, messages: Sequence[Message]) -> None:
        """Give what was said since the last turn, up to where the next turn begins.

        Raises:
            Ended: there is no turn left to answer in, or no room.
        """
        if self.is_last_turn:
            self._last_words(messages)
            raise self.out_of_turns()
        rewritten = self.setting.chat.fork(self.transcript, messages, self._tools)
        ids = self._extension(messages) if rewritten is None else rewritten
        if len(ids) + (self.transcript.row_length if rewritten is None else 0) >= self.setting.policy.context_length:
            self.transcript.messages.extend(messages)
            raise _too_long(f"the reply to turn {self._turns.taken} is longer than what is left of the context")
        (self.transcript.give if rewritten is None else self.transcript.fork)(ids, messages)

    def out_of_turns(self) -> Ended:
        """How an episode ends that still goes on in its last turn."""
        return Ended(Ending(Status.TRUNCATED_TURNS, f"no answer in {self.setting.sampling.max_turns} turns"))

    def _last_words(self, messages: Sequence[Message]) -> None:
        """Keep the last observation of an episode that was cut: as tokens where there is room, and for people in any case."""
        extension = self._extension(messages) if messages else np.zeros(0, np.int32)
        fits = self.transcript.row_length + len(extension) <= self.setting.policy.context_length
        self.transcript.give(extension if fits else extension[:0], messages)

    def _extension(self, messages: Sequence[Message]) -> np.ndarray:
        closed = self.transcript.last_id in self.setting.chat.stop_ids
        return self.setting.chat.extend(messages, closed=closed, said=self._said)

    def _room(self) -> int:
        sampling = self.setting.sampling
        room = min(sampling.max_tokens_per_turn, self.setting.policy.context_length - self.transcript.row_length)
        budget = sampling.max_tokens_per_episode
        return room if budget is None else min(room, budget - self.transcript.num_sampled)

    async def _sample_turn(self, turn: int, max_tokens: int, read_turn: ReadTurn) -> tuple[Message, bool]:
        """One turn, appended; and whether it is complete. That is for the policy to say, not for the last token to suggest."""
        started = anyio.current_time()

        def append(sample: Sample) -> Message:
            message = read_turn(sample.ids, turn)
            seconds = anyio.current_time() - started
            self.transcript.sample(
                sample.ids, sample.logprobs, sample.versions, message, sample.stop_reason, seconds,
                queue_s=sample.queue_s, prefill_s=sample.prefill_s, decode_s=sample.decode_s,
            )  # fmt: skip
            return message

        try:
            sample = await self.setting.policy.sample(_request(self.setting, self.transcript, turn, max_tokens))
        except EpisodeError as fault:
            if fault.sample is not None:
                append(fault.sample)
            raise
        return append(sample), sample.stop_reason == "stop"


def in_call_order(message: Message, replies: Sequence[Message]) -> tuple[Message, ...]:
    """Replies in the order of the calls they answer, then the messages that answer none.

    Matching is by id, never by position.

    Raises:
        ValueError: a call has no reply or several, or a reply answers no call of this turn.
    """
    wanted = [call.id for call in message.calls]
    got = [reply.call_id for reply in replies if reply.role == "tool"]
    if sorted(wanted) != sorted(str(call) for call in got):
        raise ValueError(
            f"expected one tool reply for each of the calls {wanted}; got replies to {got}, from the environment's step; "
            "answer every call once, under its own id"
        )
    answers = {reply.call_id: reply for reply in replies if reply.role == "tool"}
    return (*(answers[call] for call in wanted), *(reply for reply in replies if reply.role != "tool"))


def _too_long(reason: str) -> Ended:
    return Ended(Ending(Status.TRUNCATED_LENGTH, reason))


def _request(setting: Setting, transcript: Transcript, turn: int, max_tokens: int) -> SampleRequest:
    return SampleRequest(
        ids=transcript.row_ids(),
        max_tokens=max_tokens,
        stop_ids=setting.chat.stop_ids,
        temperature=setting.sampling.temperature,
        top_k=setting.sampling.top_k,
        top_p=setting.sampling.top_p,
        min_p=setting.sampling.min_p,
        stop_strings=setting.sampling.stop_strings,
        key=(*setting.key, turn),
        session=setting.session,
    )
