"""Settings of the engine: its fixed shapes. Every array the device ever sees has a shape made of these numbers."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

POLICIES = ("eviction", "prefill_wait", "swap", "after_swap")
"""Fields that what is compiled does not depend on."""
MOST_BUCKETS = 3
"""Sizes of a kind of step: each takes a second or so to compile for a model of thirty layers."""


class EngineConfig(BaseModel):
    """Fixed shapes of an engine; nothing compiles after it has opened."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    slots: int = Field(default=32, ge=1)
    """Requests that decode at once; each slot holds the keys and values of one session."""
    kept: int = Field(default=0, ge=0)
    """Caches of idle sessions that are kept beside the slots, each as large as a slot. Without them an episode that waits for
    a tool keeps its cache only as long as nobody needs its slot."""
    eviction: Literal["oldest", "never"] = "oldest"
    """What gives way where there are more sessions than ``slots + kept``: the cache idle longest, whose episode is then read in
    again, or, with ``never``, sessions that have not begun, which wait. ``never`` makes what is sampled independent of timing
    to the last bit: reading in and decoding round differently."""
    dtype: Literal["float32", "bfloat16"] | None = None
    """Type of the engine's copy of the parameters, and of its cache; ``None`` shares those of the model as they are. bfloat16
    beside a float32 trainer halves the memory; log-probabilities are then off by about what bfloat16 rounds, see the metric
    ``engine_gap``."""
    context_length: int = Field(default=256, ge=2)
    """Most tokens of context and continuation together; the cache has this many positions per slot."""
    prefill_rows: int = Field(default=16, ge=1)
    """Rows of the largest prefill step, each with tokens of one context; a context longer than a row takes several. Smaller
    steps are compiled too, see ``prefill_buckets``."""
    prefill_chunk: int = Field(default=16, ge=1)
    """Tokens of a row. Short rows are filled better by short contexts, but each of them looks through a whole slot."""
    prefill_wait: int = Field(default=1, ge=0)
    """Decode steps for which a prefill step waits for more rows, while there is something to decode, unless it fills one of the
    sizes that are compiled: with few rows it costs nearly what it does with all of its size. 0 keeps most slots decoding, some
    make more tokens a second. Changes when things happen, never what is sampled."""
    swap: Literal["token", "episode"] = "token"
    """When new weights come into force: between two steps, so in the middle of replies, or once every session that has begun is
    released; sessions that are new wait for them."""
    after_swap: Literal["recompute", "keep"] = "recompute"
    """What becomes of caches when weights change in the middle of an episode: they are read in again under the new weights, or
    kept as the old ones computed them, which is faster and off by what the weights differ."""

    @property
    def turns(self) -> int:
        """Turns to ask for at once: one for each slot, and a quarter more that are next.

        Whoever bounds turns by this lets the rest wait where it can be seen. The next ones must be here already: a slot that
        comes free is given on before the next step, without waiting for the event loop.
        """
        return self.slots + max(1, self.slots // 4)

    @property
    def prefill_buckets(self) -> tuple[int, ...]:
        """Numbers of rows of the prefill steps that are compiled, ascending: ``prefill_rows`` and halves of it.

        Not below 33 tokens in all: on CPU a row of a smaller matrix product has other bits. The engine looks when it opens
        which of these sizes agree with the largest to the bit, and uses no other.
        """
        return _halved(self.prefill_rows, 32 // self.prefill_chunk + 1)

    @property
    def decode_buckets(self) -> tuple[int, ...]:
        """Numbers of rows of the decode steps that are compiled, ascending: all slots, and halves for when few are busy.

        Not below 8: fewer rows cost nearly the same, and on CPU have other bits. Used only where they agree with the step of
        all slots, as prefill steps do.
        """
        return _halved(self.slots, 8)

    @property
    def shape(self) -> "EngineConfig":
        """The same with its policies at their defaults: engines that differ in nothing else share their programs."""
        return self.model_copy(update={name: type(self).model_fields[name].default for name in POLICIES})


def _halved(largest: int, least: int) -> tuple[int, ...]:
    """A size and its halves, ascending, at most ``MOST_BUCKETS`` in all."""
    sizes = [largest]
    while sizes[0] // 2 >= least and len(sizes) < MOST_BUCKETS:
        sizes.insert(0, sizes[0] // 2)
    return tuple(sizes)
