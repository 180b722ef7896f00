"""The vocabulary the stage families share: what flows along the edges of a graph.

Frozen msgspec structs. A value that was not measured is ``None``; in a per-token array, where ``None`` cannot stand, it is
NaN (log-probabilities) or -1 (versions), never 0. This file knows no stage, no model and no tokenizer.

Axes: T tokens of one episode, R rows of a batch, L length of a row.
"""

import enum
import itertools
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


class Status(enum.StrEnum):
    """How an episode ended: a closed set. docs/status.md has the rule of each for reward, statistics and training."""

    FINISHED = "finished"
    TRUNCATED_LENGTH = "truncated_length"
    TRUNCATED_TURNS = "truncated_turns"
    TIMED_OUT = "timed_out"
    ENVIRONMENT_ERROR = "environment_error"
    TOOL_ERROR = "tool_error"
    MODEL_ERROR = "model_error"
    CANCELLED = "cancelled"

    @property
    def failed(self) -> bool:
        """True where the outcome says nothing about the policy: no reward, no part in statistics, no training."""
        return self in _FAILED


_FAILED = {Status.TIMED_OUT, Status.ENVIRONMENT_ERROR, Status.TOOL_ERROR, Status.MODEL_ERROR, Status.CANCELLED}


class Turn(msgspec.Struct, frozen=True):
    """One stretch of sampled tokens, ``ids[start:stop]`` of its episode."""

    start: int
    stop: int
    stop_reason: Literal["stop", "length", "aborted"]
    """``stop``: the last id of the span is a stop token, or completes a stop string. ``length``: the token budget ran out.
    ``aborted``: it took too long; such an episode has failed."""
    model_s: float
    """Seconds from request to reply, waiting for a slot included."""
    tool_s: float | None
    """Seconds the environment took to answer; ``None`` where it was not asked."""


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
    forks: tuple[int, ...] = ()
    """Where in ``ids`` further training rows begin, because the chat template rewrote what came before; empty for one row."""

    @property
    def num_sampled(self) -> int:
        """Number of sampled tokens."""
        return int(self.mask.sum())

    @property
    def rows(self) -> tuple[slice, ...]:
        """The parts of the arrays that are contexts of their own, in order: one, and one more for each fork."""
        return tuple(slice(start, stop) for start, stop in itertools.pairwise((0, *self.forks, len(self.ids))))


class Group(msgspec.Struct, frozen=True, eq=False):
    """The scored members of one task, in member order."""

    birth: int
    episodes: tuple[Episode, ...]
    advantages: np.ndarray | None = None
    """float32 [members]; ``None`` before the advantage stage; 0 for a member that is not trained."""


class Example(msgspec.Struct, frozen=True):
    """A demonstration for supervised training: a conversation whose assistant messages are the targets."""

    id: str
    messages: tuple[Message, ...]


class EpisodeRow(msgspec.Struct, frozen=True):
    """What the metrics of a step need of one episode once its tokens are packed."""

    status: Status
    reward: float | None
    num_sampled: int
    num_turns: int
    seconds: float
    num_forks: int = 0
    """Training rows beyond the first."""


class Batch(msgspec.Struct, frozen=True, eq=False):
    """Segments packed into rows of one static length. Segment numbers start at 1 in each row; 0 is padding.

    Arrays are aligned to the token they describe: ``mask[r, l]`` says that token ``l`` is a target, predicted from the
    tokens of the same segment before it.
    """

    birth: int
    """Birth number of the group (or of the demonstration) it was cut from: the order in which batches are summed."""
    ids: np.ndarray
    """int32 [R, L]"""
    positions: np.ndarray
    """int32 [R, L]: position within the segment, from 0."""
    segments: np.ndarray
    """int32 [R, L]"""
    mask: np.ndarray
    """bool [R, L]"""
    logprobs: np.ndarray
    """float32 [R, L]: behaviour log-probabilities, 0 where ``mask`` is False."""
    advantages: np.ndarray
    """float32 [R, L]: one value for all targets of a segment, 0 where ``mask`` is False."""
    versions: np.ndarray
    """int32 [R, L]: weight version that sampled the target; -1 where ``mask`` is False, and where no policy sampled it."""
    episodes: tuple[EpisodeRow, ...] = ()

    @property
    def num_targets(self) -> int:
        """Number of tokens with a loss."""
        return int(self.mask.sum())


class Weights(msgspec.Struct, frozen=True, eq=False):
    """Parameters to sample with. The version belongs to the cell that carries them, not to this record."""

    parameters: Any
    """A pytree of arrays, in the layout of the model that made it."""
