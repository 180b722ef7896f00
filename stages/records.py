"""The vocabulary the stage families share: what flows along the edges of a graph.

Frozen msgspec structs. A value that was not measured is ``None``; in a per-token array, where ``None`` cannot stand, it is
NaN (log-probabilities) or -1 (versions), never 0. This file knows no stage, no model and no tokenizer.

Axes: T tokens of one episode or of one segment.
"""

import enum
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal

import msgspec
import numpy as np


class Task(msgspec.Struct, frozen=True):
    """One thing to do: what the environment shows the agent, and what it needs to score the outcome."""

    id: str
    """Unique within its source and the same in every run."""
    prompt: str
    """The text of the first user message."""
    answer: str | None = None
    """The reference answer; ``None`` where the environment scores without one."""
    source: str = ""
    """Name of the source it was drawn from."""
    extra: dict[str, Any] = {}
    """Whatever else the environment of this task reads."""
    difficulty: str | None = None
    """A label such as ``easy``, of few: outcomes are counted by it, and curricula choose by it. ``None`` where nobody said."""


class ToolCall(msgspec.Struct, frozen=True, tag="call"):
    """A call the policy made."""

    id: str
    """Unique within its episode; the reply carries the same id."""
    name: str
    arguments: dict[str, Any]


class BadCall(msgspec.Struct, frozen=True, tag="bad_call"):
    """Text that opened a tool call but is none. It is answered with ``problem`` and never executed."""

    id: str
    problem: str
    """One line for the policy to read: expected, got."""


class Message(msgspec.Struct, frozen=True):
    """One message of a conversation, as text. Records only: training reads token ids, never this text."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    calls: tuple[ToolCall | BadCall, ...] = ()
    """Calls of an assistant message, in order."""
    call_id: str | None = None
    """For a tool message, the call it answers."""


class StatusRule(msgspec.Struct, frozen=True):
    """What follows from a status. Whoever treats episodes differently by how they ended reads it here."""

    meaning: str
    """What happened, in a line."""
    end: Literal["terminated", "truncated", "failed"]
    """By the rules of the task, cut short by a limit, or for a reason that says nothing about the policy."""
    answers: bool = False
    """Whether the policy's last message is an answer. Rewards that compare answers give 0 where it is none."""

    @property
    def scored(self) -> bool:
        """Whether it gets a reward; if not, its reward is ``None`` for ever, which is not 0."""
        return self.end != "failed"

    @property
    def counts(self) -> bool:
        """Whether it takes part in the statistics of its group, and its tokens in the divisor of a step's loss."""
        return self.end != "failed"

    @property
    def trains(self) -> bool:
        """Whether what the policy sampled is trained."""
        return self.end != "failed"

    @property
    def completes(self) -> bool:
        """Whether it is a member its group waits for; if not, the barrier's declared policy says what comes of the group."""
        return self.end != "failed"


class Status(enum.StrEnum):
    """How an episode ended: a closed set. ``STATUS_RULES`` and docs/status.md have the rule of each."""

    FINISHED = "finished"
    TRUNCATED_LENGTH = "truncated_length"
    TRUNCATED_TURNS = "truncated_turns"
    TIMED_OUT = "timed_out"
    ENVIRONMENT_ERROR = "environment_error"
    TOOL_ERROR = "tool_error"
    MODEL_ERROR = "model_error"
    CANCELLED = "cancelled"

    @property
    def rule(self) -> StatusRule:
        """What follows from it."""
        return STATUS_RULES[self]

    @property
    def failed(self) -> bool:
        """True where the outcome says nothing about the policy: no reward, no part in statistics, no training."""
        return self.rule.end == "failed"


STATUS_RULES: Mapping[Status, StatusRule] = {
    Status.FINISHED: StatusRule("the agent answered, or the environment ended", "terminated", answers=True),
    Status.TRUNCATED_LENGTH: StatusRule("a turn was cut by the token budget or the context", "truncated"),
    Status.TRUNCATED_TURNS: StatusRule(
        "still acting at the last allowed turn, cut short by the environment, or ended for invalid calls", "truncated"
    ),
    Status.TIMED_OUT: StatusRule("a time limit of the episode passed", "failed"),
    Status.ENVIRONMENT_ERROR: StatusRule("making, reset, step, score or a reward function failed", "failed"),
    Status.TOOL_ERROR: StatusRule("a tool said that its outcome says nothing about the policy", "failed"),
    Status.MODEL_ERROR: StatusRule("the policy failed, or gave tokens without a usable log-probability", "failed"),
    Status.CANCELLED: StatusRule("somebody outside cancelled it", "failed"),
}
"""The rule of each status: the one place where it is decided."""


class Turn(msgspec.Struct, frozen=True):
    """One stretch of sampled tokens, ``ids[start:stop]`` of its episode."""

    start: int
    stop: int
    stop_reason: Literal["stop", "length", "aborted"]
    """``stop``: the last id of the span is a stop token, or completes a stop string. ``length``: the token budget ran out.
    ``aborted``: it took too long; such an episode has failed."""
    model_s: float | None
    """Seconds from request to reply, waiting for a slot included; ``None`` where no policy was asked."""
    tool_s: float | None
    """Seconds the environment took to answer; ``None`` where it was not asked."""
    reward: float | None = None
    """What the environment gave for this turn; ``None`` where it gives no rewards turn by turn."""
    queue_s: float | None = None
    """Of ``model_s``, seconds of waiting for a permit and for a slot; ``None`` where nobody told, as below."""
    prefill_s: float | None = None
    """Of ``model_s``, seconds in which the context was read in; ``None`` also where the turn was cut short before."""
    decode_s: float | None = None
    """Of ``model_s``, seconds in which its tokens were sampled; ``None`` also where the turn was cut short before."""


class Timings(msgspec.Struct, frozen=True):
    """Seconds of an episode beside its turns; ``None`` where it did not come to that."""

    setup_s: float | None = None
    """Making the environment, or waiting for one of a pool."""
    reset_s: float | None = None
    score_s: float | None = None
    """Scoring by the environment."""
    close_s: float | None = None


class Row(msgspec.Struct, frozen=True):
    """Tokens that one reader saw, ``ids[start:stop]`` of its episode: read from position 0, trained apart from other rows."""

    start: int
    stop: int
    role: str = ""
    """Whose conversation it is, in an episode of several roles."""
    trained: bool = True
    """Whether its sampled tokens are trained."""
    forked: bool = False
    """Whether it begins with what was said before, as the chat template writes that once the conversation has gone on."""


class Episode(msgspec.Struct, frozen=True, eq=False):
    """One agent-environment interaction, token by token.

    ``ids``, ``mask``, ``logprobs`` and ``versions`` always have one length.
    """

    task: Task
    birth: int
    """Birth number of its group in the run."""
    member: int
    """Index in its group."""
    retry: int
    """How often this member had failed before."""
    ids: np.ndarray
    """int32 [T]: every token the policy saw or sampled, in order."""
    mask: np.ndarray
    """bool [T]: True where the policy sampled the token."""
    logprobs: np.ndarray
    """float32 [T]: behaviour log-probability of a sampled token under the distribution it was sampled from; NaN elsewhere."""
    versions: np.ndarray
    """int32 [T]: weight version that sampled the token; -1 elsewhere."""
    turns: tuple[Turn, ...]
    messages: tuple[Message, ...]
    """The conversation as text, for people."""
    status: Status
    error: str | None = None
    """One line: what failed, where the status is a failure."""
    reward: float | None = None
    """The sum training uses; ``None`` until scored, and for ever where the status is a failure."""
    parts: dict[str, float] = {}
    """Reward by name of its part."""
    seconds: float = 0.0
    """Wall time of the whole episode."""
    rows: tuple[Row, ...] = ()
    """The rows that its tokens are made of, one after another; empty for a single one of all tokens, which is trained."""
    reference: np.ndarray | None = None
    """float32 [T]: log-probability of a sampled token under the reference model, at the temperature it was sampled at; NaN
    elsewhere. ``None`` until scored, and where there is no reference."""
    teacher: np.ndarray | None = None
    """The same under the teacher of a distillation."""
    values: np.ndarray | None = None
    """float32 [T]: the critic's value of what came before a sampled token; NaN elsewhere. ``None`` where there is no critic."""
    turn_rewards: tuple[float, ...] | None = None
    """What of ``reward`` belongs to each of ``turns``, weighted as it is in there; the rest belongs to the end. ``None`` where
    all of it does."""
    timings: Timings = Timings()
    """Where ``seconds`` went, beside the turns."""

    @property
    def all_rows(self) -> tuple[Row, ...]:
        """``rows``, the single one of all tokens written out."""
        return self.rows or (Row(0, len(self.ids)),)

    @property
    def num_sampled(self) -> int:
        """Number of sampled tokens."""
        return int(self.mask.sum())

    @property
    def num_untrained(self) -> int:
        """Number of sampled tokens in rows that are not trained."""
        return sum(int(self.mask[row.start : row.stop].sum()) for row in self.rows if not row.trained)

    @property
    def num_forks(self) -> int:
        """Number of rows that begin with a history written anew."""
        return sum(row.forked for row in self.rows)


class Group(msgspec.Struct, frozen=True, eq=False):
    """The scored members of one task, in member order."""

    birth: int
    episodes: tuple[Episode, ...]
    advantages: tuple[np.ndarray, ...] | None = None
    """float32 [T] for each member, aligned to its ids: 0 where the token was not sampled, and for a member that is not live.
    ``None`` before the advantage stage."""
    returns: tuple[np.ndarray, ...] | None = None
    """What the critic should have said, aligned alike; ``None`` where there is no critic."""
    live: tuple[bool, ...] | None = None
    """Members that take part in statistics, in the divisor of the loss and in training; ``None`` before the advantage stage."""


class Example(msgspec.Struct, frozen=True):
    """A demonstration for supervised training: a conversation whose assistant messages are the targets."""

    id: str
    messages: tuple[Message, ...]


class Preference(msgspec.Struct, frozen=True):
    """Two replies to one prompt, of which somebody prefers one."""

    id: str
    prompt: tuple[Message, ...]
    """What was said before; its assistant messages are no targets."""
    chosen: tuple[Message, ...]
    """The better reply: begins and ends with an assistant message."""
    rejected: tuple[Message, ...]
    """The worse one, alike."""


class EpisodeRow(msgspec.Struct, frozen=True):
    """What the metrics of a step need of one episode once its tokens are packed."""

    status: Status
    reward: float | None
    num_sampled: int
    num_turns: int
    seconds: float
    num_untrained: int = 0
    """Sampled tokens of roles that are not trained."""
    num_forks: int = 0
    """Rows that begin with a history written anew."""
    live: bool = True
    """Whether it took part in statistics and in the divisor of the loss."""
    source: str = ""
    """``Task.source``."""
    difficulty: str | None = None
    """``Task.difficulty``."""


class Segment(msgspec.Struct, frozen=True, eq=False):
    """Tokens that are read together, from position 0, and see no other segment.

    Arrays are aligned to the token they describe: ``mask[t]`` says that token t is a target, predicted from the tokens before
    it. What stands elsewhere means nothing.
    """

    ids: np.ndarray
    """int32 [T]"""
    mask: np.ndarray
    """bool [T]: targets. The first token cannot be one: nothing predicts it."""
    advantages: np.ndarray | None = None
    """float32 [T]; ``None`` for a loss that reads none."""
    logprobs: np.ndarray | None = None
    """float32 [T]: behaviour log-probabilities; ``None`` where no policy sampled them, and for a loss that reads none."""
    versions: np.ndarray | None = None
    """int32 [T]: weight version that sampled each target; ``None`` where no policy sampled them."""
    reference: np.ndarray | None = None
    """float32 [T]: log-probabilities under the reference model; ``None`` for a loss that reads none."""
    values: np.ndarray | None = None
    """float32 [T]: what the critic said; ``None`` for a loss that reads none."""
    returns: np.ndarray | None = None
    """float32 [T]: what the critic should have said; ``None`` for a loss that reads none."""
    weight: float = 1.0
    """Share of each target in the summed loss: 1, or one over the tokens of its sequence."""
    name: str = "segment"
    """For error messages."""


class Batch(msgspec.Struct, frozen=True, eq=False):
    """What a group, or a set of demonstrations, gives to train on."""

    birth: int
    """Birth number of the group it was cut from: the order in which batches are summed."""
    units: tuple[tuple[Segment, ...], ...]
    """Segments that must share a row stand in one unit: two for a preference, else one. Empty without any target."""
    divisor: float
    """Its part of what the summed loss of a step is divided by: tokens, sequences or pairs, those included that have no
    gradient and therefore no segment here."""
    episodes: tuple[EpisodeRow, ...] = ()

    @property
    def segments(self) -> tuple[Segment, ...]:
        """All segments, in order."""
        return tuple(segment for unit in self.units for segment in unit)

    @property
    def num_targets(self) -> int:
        """Number of tokens with a loss."""
        return sum(int(segment.mask.sum()) for segment in self.segments)


class Weights(msgspec.Struct, frozen=True, eq=False):
    """Parameters to sample with. The version belongs to the cell that carries them, not to this record."""

    parameters: Any
    """A pytree of arrays, in the layout of the model that made it: of the policy alone, where it has a critic beside it."""
    critic: Any | None = None
    """The same of the critic; ``None`` where there is none."""
    reference: Any | None = None
    """What a reference that follows the policy has in place of ``parameters``; ``None`` where it is frozen, or absent."""


LoadWeights = Callable[[Weights, int], Awaitable[None]]
"""Puts weights of a version in force; returns when they are."""
