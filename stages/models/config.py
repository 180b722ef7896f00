"""The shape of a decoder: sizes and constants, no arrays. Whoever builds, reads or shards a model starts from it."""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class RotaryConfig(BaseModel):
    """Rotary positions: a base, and how the frequencies are stretched for contexts longer than those of pre-training."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    base: float = Field(default=10_000.0, gt=1.0)
    """Base of the frequencies."""
    scaling: Literal["none", "linear", "llama3"] = "none"
    """``linear`` divides all frequencies by ``factor``; ``llama3`` the low ones only, with a ramp between low and high."""
    factor: float = Field(default=1.0, ge=1.0)
    """What frequencies are divided by; 1 with ``none``."""
    low_frequency_factor: float = Field(default=1.0, gt=0.0)
    """llama3: waves longer than ``original_context / low_frequency_factor`` tokens are stretched in full."""
    high_frequency_factor: float = Field(default=4.0, gt=0.0)
    """llama3: waves shorter than ``original_context / high_frequency_factor`` tokens stay as they are."""
    original_context: int = Field(default=8192, ge=1)
    """llama3: tokens of the context the model was pre-trained at."""


class ExpertsConfig(BaseModel):
    """A mixture of experts in place of the dense feed-forward part."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    num_experts: int = Field(ge=2)
    """Experts of a layer."""
    per_token: int = Field(ge=1)
    """Experts that each token goes through."""
    width: int = Field(ge=1)
    """Size of the hidden layer of one expert."""
    normalised: bool = True
    """True: the weights of a token's experts are scaled to sum to one. False: they are its router probabilities as they are."""
    dense_layers: tuple[int, ...] = ()
    """Layers, from 0, that keep the dense feed-forward part of ``mlp_width``."""

    @model_validator(mode="after")
    def _enough_experts(self) -> Self:
        if self.per_token > self.num_experts:
            raise ValueError(
                f"expected per_token of at most num_experts; got per_token={self.per_token}, num_experts={self.num_experts}; "
                "lower per_token"
            )
        return self


class ModelConfig(BaseModel):
    """A decoder of the llama line: RMSNorm, rotary positions, grouped-query attention, a gated feed-forward part.

    The defaults are llama's. What Qwen, Gemma and mixtures of experts do otherwise is a field each.
    """

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
    context_length: int = Field(ge=2)
    """Most tokens of one segment the model is meant for. Rotary positions need no table, so nothing is allocated by it."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of the parameters, of the cache and of what flows between layers. Norms, softmax and logits are float32 always."""
    tie_embeddings: bool = True
    """True: the embedding is also the output projection. False: the output projection has parameters of its own."""
    norm_epsilon: float = Field(default=1e-5, gt=0.0)
    """Added to the mean square before the root."""
    norm_offset: Literal[0, 1] = 0
    """Added to the scale of each norm: Gemma stores the scale less one."""
    norms_after: bool = False
    """True: what attention and feed-forward add to the stream is normalised first (Gemma)."""
    rotary: RotaryConfig = RotaryConfig()
    """Positions of layers that see everything, and of windowed ones unless ``window_rotary`` is given."""
    window_rotary: RotaryConfig | None = None
    """Positions of windowed layers; ``None`` takes ``rotary``."""
    windows: tuple[int | None, ...] | None = None
    """For each layer how many tokens it sees back, itself included, ``None`` for all. ``None`` instead of the tuple: all layers
    see everything."""
    projection_bias: bool = False
    """True: query, key and value projections have a bias (Qwen2)."""
    head_norms: bool = False
    """True: each query and key head is normalised before it is turned (Qwen3, Gemma 3)."""
    query_scale: float | None = Field(default=None, gt=0.0)
    """What scores are multiplied by; ``None`` takes ``head_size ** -0.5``."""
    attention_cap: float | None = Field(default=None, gt=0.0)
    """Scores are squashed to within this by ``cap * tanh(score / cap)``; ``None`` leaves them."""
    logit_cap: float | None = Field(default=None, gt=0.0)
    """The same for logits."""
    activation: Literal["silu", "gelu_tanh"] = "silu"
    """What the gate of the feed-forward part goes through."""
    embedding_scale: bool = False
    """True: embeddings are multiplied by the root of ``width``, rounded to ``dtype`` first (Gemma)."""
    experts: ExpertsConfig | None = None
    """A mixture of experts; ``None`` for dense layers only."""

    @property
    def score_scale(self) -> float:
        """What scores are multiplied by."""
        return self.head_size**-0.5 if self.query_scale is None else self.query_scale

    def window(self, layer: int) -> int | None:
        """How many tokens a layer sees back, itself included; ``None`` for all."""
        return None if self.windows is None else self.windows[layer]

    def has_experts(self, layer: int) -> bool:
        """Whether a layer is a mixture of experts."""
        return self.experts is not None and layer not in self.experts.dense_layers

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"expected num_heads to be a multiple of num_kv_heads; got num_heads={self.num_heads}, "
                f"num_kv_heads={self.num_kv_heads}; change one of the two"
            )
        if self.head_size % 2:
            raise ValueError(f"expected an even head_size, because rotary positions turn pairs; got {self.head_size}")
        if self.windows is not None and len(self.windows) != self.num_layers:
            raise ValueError(
                f"expected a window for each of the {self.num_layers} layers; got {len(self.windows)}; write None for a layer "
                "that sees everything"
            )
        return self
