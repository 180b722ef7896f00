"""The shape of a decoder: sizes and constants, no arrays. Whoever builds or reads a model starts from it."""

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class ModelConfig(BaseModel):
    """A llama-family decoder: RMSNorm, rotary positions, grouped-query attention, SwiGLU."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    vocab_size: int = Field(ge=1)
    """Number of token ids."""
    width: int = Field(ge=1)
    """Size of the residual stream."""
    num_layers: int = Field(ge=1)
    """Decoder blocks."""
    num_heads: int = Field(ge=1)
    """Query heads; a multiple of ``num_kv_heads``."""
    num_kv_heads: int = Field(ge=1)
    """Key and value heads; each serves ``num_heads / num_kv_heads`` query heads."""
    head_size: int = Field(ge=2)
    """Size of one head; even, because rotary positions turn pairs."""
    mlp_width: int = Field(ge=1)
    """Size of the hidden layer of the feed-forward part."""
    rope_base: float = Field(default=10_000.0, gt=1.0)
    """Base of the rotary frequencies."""
    norm_epsilon: float = Field(default=1e-5, gt=0.0)
    """Added to the mean square before the root."""
    tie_embeddings: bool = True
    """True: the embedding is also the output projection. False: the output projection has parameters of its own."""
    context_length: int = Field(ge=2)
    """Most tokens of one segment the model is meant for. Rotary positions need no table, so nothing is allocated by it."""

    @model_validator(mode="after")
    def _heads_fit(self) -> Self:
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"expected num_heads to be a multiple of num_kv_heads; got num_heads={self.num_heads}, "
                f"num_kv_heads={self.num_kv_heads}; change one of the two"
            )
        if self.head_size % 2:
            raise ValueError(f"expected an even head_size, because rotary positions turn pairs; got {self.head_size}")
        return self
