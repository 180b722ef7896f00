"""The loop that all agents here share: sample a turn, let the environment answer, append, until somebody ends it.

Not an agent itself: the agents say how a sampled turn becomes a message. Budgets are kept here. A turn gets what is left of the
context; a turn that runs into its budget ends the episode as truncated by length and nothing in it is executed; an answer that
is already in keeps the episode finished, however little room is left after it. A turn that stopped on a stop string, without a
stop token, gets its end token from the chat once the conversation goes on: given, not sampled.
"""

from collections.abc import Callable, Sequence

import anyio
import numpy as np

from stages.agents.agent import Ending, Setting
from stages.agents.guards import EpisodeError
from stages.policy import Sample, SampleRequest
from stages.records import Message, Status
from stages.text.transcript import Transcript

ReadTurn = Callable[[np.ndarray, int], Message]
"""Sampled ids and the number of the turn -> the turn as a message."""


async def converse(setting: Setting, transcript: Transcript, read_turn: ReadTurn, *, skip_last_calls: bool) -> Ending:
    """Hold a conversation.

    Args:
        setting: see ``Agent.run``.
        transcript: see ``Agent.run``.
        read_turn: how a turn becomes a message.
        skip_last_calls: do not hand a turn with calls to the environment where there is no turn left to read the answers.

    Raises:
        ValueError: the environment's replies do not answer the turn's calls, each once.
    """
    opening = setting.opening
    transcript.give(setting.chat.open(opening.messages, opening.tools), opening.messages)
    max_turns = setting.sampling.max_turns
    out_of_turns = Ending(Status.TRUNCATED_TURNS, f"no answer in {max_turns} turns")
    for turn in range(max_turns):
        room = _room(setting, transcript)
        if room < 1:
            return Ending(Status.TRUNCATED_LENGTH, f"no room for turn {turn + 1} after {transcript.row_length} tokens")
        message, complete = await _sample_turn(setting, transcript, turn, room, read_turn)
        if not complete:
            return Ending(Status.TRUNCATED_LENGTH, f"turn {turn + 1} was cut after {transcript.turns[-1].stop} tokens")
        if message.calls and skip_last_calls and turn + 1 == max_turns:
            return out_of_turns
        started = anyio.current_time()
        reply = await setting.env.step(message)
        transcript.answered(anyio.current_time() - started)
        if reply.end is not None:
            transcript.messages.extend(reply.messages)
            return Ending(reply.end, reply.reason)
        replies = in_call_order(message, reply.messages)
        if turn + 1 == max_turns:
            transcript.messages.extend(replies)
            return out_of_turns
        rewritten = setting.chat.fork(transcript, replies, opening.tools)
        closed = transcript.last_id in setting.chat.stop_ids
        ids = setting.chat.extend(replies, closed=closed, said=message) if rewritten is None else rewritten
        if len(ids) + (transcript.row_length if rewritten is None else 0) >= setting.policy.context_length:
            transcript.messages.extend(replies)
            return Ending(Status.TRUNCATED_LENGTH, f"the reply to turn {turn + 1} is longer than what is left of the context")
        (transcript.give if rewritten is None else transcript.fork)(ids, replies)
    return out_of_turns


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


def _room(setting: Setting, transcript: Transcript) -> int:
    room = min(setting.sampling.max_tokens_per_turn, setting.policy.context_length - transcript.row_length)
    budget = setting.sampling.max_tokens_per_episode
    return room if budget is None else min(room, budget - transcript.num_sampled)


async def _sample_turn(
    setting: Setting, transcript: Transcript, turn: int, max_tokens: int, read_turn: ReadTurn
) -> tuple[Message, bool]:
    """One turn, appended; and whether it is complete. That is for the policy to say, not for the last token to suggest."""
    request = SampleRequest(
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
    started = anyio.current_time()

    def append(sample: Sample) -> Message:
        message = read_turn(sample.ids, turn)
        seconds = anyio.current_time() - started
        transcript.sample(sample.ids, sample.logprobs, sample.versions, message, sample.stop_reason, seconds)
        return message

    try:
        sample = await setting.policy.sample(request)
    except EpisodeError as fault:
        if fault.sample is not None:
            append(fault.sample)
        raise
    return append(sample), sample.stop_reason == "stop"
