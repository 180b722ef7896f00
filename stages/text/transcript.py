"""The token record of one episode while it grows: ids, mask, log-probabilities and versions, always of one length.

Only appends. Where a chat format would write anew what came before, a new row begins with what it writes; rows that are there
do not change. Not an episode: ``episodes.py`` freezes it into one, whatever happened. Used by agents, and by ``Demonstrate``.
"""

import itertools
from collections.abc import Iterable
from typing import Literal

import msgspec
import numpy as np

from stages.records import Message, Row, Turn


class Transcript:
    """Tokens given to the policy and tokens sampled from it, in order."""

    def __init__(self, role: str = "", *, trained: bool = True) -> None:
        """Begin an empty one.

        Args:
            role: whose conversation it is, in an episode of several roles.
            trained: whether what is sampled is trained.
        """
        self.role = role
        self.trained = trained
        self.branches: list[Transcript] = []
        self.turns: list[Turn] = []
        self.messages: list[Message] = []
        self._ids: list[np.ndarray] = []
        self._sampled: list[bool] = []
        self._logprobs: list[np.ndarray] = []
        self._versions: list[np.ndarray] = []
        self._length = 0
        self._num_sampled = 0
        self._spoken: list[int] = []
        self._forks: list[int] = []
        self._row = 0

    def __len__(self) -> int:
        return self._length

    @property
    def num_sampled(self) -> int:
        """Number of sampled tokens."""
        return self._num_sampled

    @property
    def row_length(self) -> int:
        """Number of tokens of the newest row: what the policy has in front of it."""
        return self._length - (self._forks[-1] if self._forks else 0)

    @property
    def last_id(self) -> int:
        """The newest token. Of a transcript that is not empty."""
        return int(self._ids[-1][-1])

    def give(self, ids: np.ndarray, messages: Iterable[Message] = ()) -> None:
        """Append tokens that the policy did not sample: mask False, no log-probability, no version.

        Args:
            ids: [N].
            messages: the same as text.
        """
        self._append(ids, np.full(len(ids), np.nan, np.float32), np.full(len(ids), -1, np.int32), sampled=False)
        self.messages.extend(messages)

    def fork(self, ids: np.ndarray, messages: Iterable[Message] = ()) -> None:
        """Begin a new row of the same reader: the next turn is sampled after these tokens alone.

        Args:
            ids: [N], the whole context, at least one token.
            messages: what is new in it, as text.

        Raises:
            ValueError: there is no token.
        """
        if len(ids) == 0:
            raise ValueError("expected the context of a new row; got no token, in Transcript.fork; check the chat's fork")
        self._forks.append(self._length)
        self._row = len(self._ids)
        self.give(ids, messages)

    def sample(
        self,
        ids: np.ndarray,
        logprobs: np.ndarray,
        versions: np.ndarray,
        message: Message,
        stop_reason: Literal["stop", "length", "aborted"],
        model_s: float | None,
        queue_s: float | None = None,
        prefill_s: float | None = None,
        decode_s: float | None = None,
    ) -> None:
        """Append one turn of sampled tokens, exactly as sampled: mask True.

        Args:
            ids: [N], at least one.
            logprobs: [N].
            versions: [N].
            message: the turn as read.
            stop_reason: see ``Turn``.
            model_s: see ``Turn``, as for the parts of it below.
            queue_s: waiting.
            prefill_s: reading in.
            decode_s: sampling.

        Raises:
            ValueError: the arrays differ in length, or are empty.
        """
        if len(ids) == 0:
            raise ValueError("expected at least one sampled token; got none, in Transcript.sample; check the policy's sample")
        start = self._length
        self._append(ids, logprobs, versions, sampled=True)
        self._num_sampled += len(ids)
        told = {"queue_s": queue_s, "prefill_s": prefill_s, "decode_s": decode_s}
        self.turns.append(Turn(start, self._length, stop_reason, model_s, None, **told))
        self._spoken.append(len(self.messages))
        self.messages.append(message)

    def answered(self, tool_s: float, reward: float | None = None) -> None:
        """Note how long the environment took to answer the last turn, in seconds, and what the turn earned."""
        self.turns[-1] = msgspec.structs.replace(self.turns[-1], tool_s=tool_s, reward=reward)

    def branch(self, role: str, *, trained: bool = True) -> "Transcript":
        """Begin a row of its own, for a reader who sees other tokens. Its tokens stand behind those of the rows before it.

        Args:
            role: whose conversation it is.
            trained: whether what is sampled in it is trained.

        Returns:
            The transcript of the row. Its messages are its own.
        """
        branch = Transcript(role, trained=trained)
        self.branches.append(branch)
        return branch

    def rows(self) -> tuple[Row, ...]:
        """The rows that the tokens are made of; empty where there was no branch and no fork."""
        rows = tuple(
            Row(first + start, first + stop, part.role, part.trained, forked=start > 0)
            for first, part in self._parts()
            for start, stop in itertools.pairwise((0, *part._forks, len(part)))
            if stop > start
        )
        return rows if len(rows) > 1 or self.branches else ()

    def all_turns(self) -> tuple[Turn, ...]:
        """The turns of all rows, row by row, with their places among all tokens."""
        return tuple(
            msgspec.structs.replace(turn, start=turn.start + start, stop=turn.stop + start)
            for start, part in self._parts()
            for turn in part.turns
        )

    def ids(self) -> np.ndarray:
        """All tokens so far, int32 [T]."""
        return _joined([ids for _, part in self._parts() for ids in part._ids], np.int32)

    def row_ids(self) -> np.ndarray:
        """Tokens of the newest row, int32 [T]."""
        return _joined(self._ids[self._row :], np.int32)

    def spoken(self) -> list[tuple[int, np.ndarray]]:
        """Of each sampled turn the place of its message in ``messages``, and its ids, int32 [N]."""
        ids = [ids for ids, sampled in zip(self._ids, self._sampled, strict=True) if sampled]
        return list(zip(self._spoken, ids, strict=True))

    def mask(self) -> np.ndarray:
        """True where the policy sampled the token, bool [T]."""
        parts = [zip(part._ids, part._sampled, strict=True) for _, part in self._parts()]
        return _joined([np.full(len(ids), sampled) for part in parts for ids, sampled in part], np.bool_)

    def logprobs(self) -> np.ndarray:
        """Behaviour log-probabilities, NaN where not sampled, float32 [T]."""
        return _joined([logprobs for _, part in self._parts() for logprobs in part._logprobs], np.float32)

    def versions(self) -> np.ndarray:
        """Weight versions, -1 where not sampled, int32 [T]."""
        return _joined([versions for _, part in self._parts() for versions in part._versions], np.int32)

    def _parts(self) -> "list[tuple[int, Transcript]]":
        """This one and its branches, as far as they hold something, each with the place of its first token."""
        parts = [part for part in (self, *self.branches) if len(part)]
        return list(zip(itertools.accumulate((len(part) for part in parts), initial=0), parts, strict=False))

    def _append(self, ids: np.ndarray, logprobs: np.ndarray, versions: np.ndarray, *, sampled: bool) -> None:
        if not len(ids) == len(logprobs) == len(versions):
            raise ValueError(
                f"expected ids, logprobs and versions of one length; got {len(ids)}, {len(logprobs)} and {len(versions)}, "
                "in Transcript; check the policy's sample"
            )
        self._ids.append(np.asarray(ids, np.int32))
        self._logprobs.append(np.asarray(logprobs, np.float32))
        self._versions.append(np.asarray(versions, np.int32))
        self._sampled.append(sampled)
        self._length += len(ids)


def _joined(parts: list[np.ndarray], dtype: type) -> np.ndarray:
    return np.concatenate(parts).astype(dtype, copy=False) if parts else np.zeros(0, dtype)
