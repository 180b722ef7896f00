"""Settings of the engine: its fixed shapes. Every array the device ever sees has a shape made of these numbers."""

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class EngineConfig(BaseModel):
    """Fixed shapes of an engine; nothing compiles after it has opened."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    slots: int = Field(default=32, ge=1)
    """Requests that decode at once; each slot holds the keys and values of one session."""
    context_length: int = Field(default=256, ge=2)
    """Most tokens of context and continuation together; the cache has this many positions per slot."""
    prefill_rows: int = Field(default=8, ge=1)
    """Slots whose context is read in together; at most ``slots``."""
    prefill_chunk: int = Field(default=32, ge=1)
    """Tokens of each that are read in per step."""
    prefill_wait: int = Field(default=4, ge=0)
    """Decode steps for which a prefill step that is not full waits for more rows, while there is something to decode. A prefill
    step costs the same however few rows it has. Changes when things happen, never what is sampled."""

    @model_validator(mode="after")
    def _rows_fit(self) -> Self:
        if self.prefill_rows > self.slots:
            raise ValueError(
                f"expected prefill_rows of at most slots; got prefill_rows={self.prefill_rows}, slots={self.slots}; "
                "lower prefill_rows"
            )
        return self
