"""What an engine has done since it opened, in numbers. A record only; ``worker.py`` counts."""

import msgspec


class EngineStatistics(msgspec.Struct, frozen=True):
    """Counters since the engine opened."""

    steps: int
    """Decode steps."""
    busy_slot_steps: int
    """Slots that took part in them, summed; over ``steps * slots`` it is the occupancy."""
    sampled_tokens: int
    """Tokens sampled, those of cancelled requests included."""
    prefilled_tokens: int
    """Context tokens read in."""
    kept_tokens: int
    """Context tokens that a request found cached from an earlier turn."""
    shared_tokens: int
    """Context tokens that were copied from another session instead of read in."""
    slots_busy: int
    """Slots with a request, now."""
    waiting: int
    """Requests without a slot, now."""
    evictions: int
    """Sessions that lost their cache to another one before they were released."""
    evicted_tokens: int
    """Tokens that were cached for them then."""
    prefill_s: float
    """Seconds in prefill steps."""
    decode_s: float
    """Seconds in decode steps."""
    compilations: int
    """Programs compiled; it does not grow after the engine has opened."""
    loaded_bytes: int
    """Bytes of parameters that loads have put in force, in the engine's type."""
    version: int
    """Weight version in force."""
