"""Low-rank adapters: small matrices beside frozen projections. Adding them to a model, telling them apart, folding them in.

How an adapter enters the forward pass stands in ``linear.py``. Training and the engine ask the model itself what it has: where
there are adapters, they alone are trained, saved and published.

Axes: I input size, O output size, R rank.
"""

from collections.abc import Iterator
from typing import Literal, get_args

import jax
import jax.numpy as jnp
from flax import nnx
from pydantic import BaseModel, ConfigDict, Field

from stages.models.linear import Linear, draw_normals
from stages.models.transformer import Transformer

Projection = Literal["query", "key", "value", "output", "gate", "up", "down"]
"""A dense projection of a block."""


class LoraConfig(BaseModel):
    """Which projections get an adapter, and how large it is."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rank: int = Field(default=16, ge=1)
    """Size between the two matrices of an adapter."""
    alpha: float = Field(default=32.0, gt=0.0)
    """What an adapter adds is multiplied by ``alpha / rank``, so the rank may change and the learning rate stay."""
    modules: tuple[Projection, ...] | None = Field(default=None, min_length=1)
    """Projections with an adapter; ``None`` for every dense one the model has. The experts of a mixture are none."""
    seed: int | None = Field(default=None, ge=0, lt=2**31)
    """Decides the first matrix of each adapter; ``None`` for that of the run, and 0 where there is none."""


def add_lora(model: Transformer, config: LoraConfig, rngs: nnx.Rngs | None = None) -> None:
    """Give a model adapters, in place. They change nothing yet: the second matrix of each begins at zero.

    A model that is only described, whose weights are still to come, may be given them too: ``tensors.fill`` leaves them alone.
    Under ``nnx.eval_shape`` they are shapes, as everything is.

    Args:
        model: without adapters.
        config: see ``LoraConfig``.
        rngs: where the first matrices are drawn from; ``None`` takes ``config.seed``.

    Raises:
        ValueError: the model has adapters, or one of the named modules is no dense projection of some of its layers.

    Source: Hu et al. 2021, arXiv 2106.09685, section 4.1. We differ: the first matrix is normal with deviation
        ``I ** -0.5``, which the paper leaves open.
    """
    _refuse(model, config)
    rngs = nnx.Rngs(config.seed or 0) if rngs is None else rngs
    for _, _, linear in _projections(model, config.modules):
        (size_in, size_out), dtype = linear.kernel_IO.shape, linear.kernel_IO.dtype
        axis_in, axis_out = linear.kernel_IO.get_metadata()["axes"]
        (down,) = draw_normals(rngs.params(), (((size_in, config.rank), size_in**-0.5),), str(dtype))
        linear.lora_down_IR = nnx.LoRAParam(down, axes=(axis_in, None))
        linear.lora_up_RO = nnx.LoRAParam(jnp.zeros((config.rank, size_out), dtype), axes=(None, axis_out))
        linear.lora_scale = config.alpha / config.rank


class TrainedParam(nnx.Param):
    """A parameter that is trained beside adapters too: the head of a critic."""


def has_adapters(model: nnx.Module) -> bool:
    """Whether there is any."""
    return bool(jax.tree.leaves(nnx.state(model, nnx.LoRAParam)))


def trained(model: nnx.Module) -> nnx.filterlib.Filter:
    """What of a model is trained, as a filter for ``nnx.split`` and ``nnx.state``.

    Its adapters and what is trained beside them, or everything where it has no adapters.
    """
    return (nnx.LoRAParam, TrainedParam) if has_adapters(model) else nnx.Param


def without_adapters(model: Transformer) -> Transformer:
    """The decoder beneath the adapters. It shares the parameters of the model, those that are still to be loaded too."""
    base = nnx.clone(model, variables=False)
    for _, _, linear in _projections(base):
        linear.lora_down_IR = linear.lora_up_RO = nnx.data(None)
        linear.lora_scale = 0.0
    return base


def merged(model: Transformer) -> Transformer:
    """The same decoder without adapters, what they add folded into the kernels. The model itself is left as it is.

    Folded in float32 and rounded once to the kernel's dtype: in bfloat16 a small adapter can vanish in that rounding.
    """
    copy = nnx.clone(model)
    for _, _, linear in _projections(copy):
        down, up = linear.lora_down_IR, linear.lora_up_RO
        if down is None or up is None:
            continue
        added_IO = linear.lora_scale * (down[...].astype(jnp.float32) @ up[...].astype(jnp.float32))
        kernel_IO = linear.kernel_IO[...]
        linear.kernel_IO[...] = (kernel_IO.astype(jnp.float32) + added_IO).astype(kernel_IO.dtype)
        linear.lora_down_IR = linear.lora_up_RO = nnx.data(None)
        linear.lora_scale = 0.0
    return copy


def _projections(model: Transformer, modules: tuple[str, ...] | None = None) -> Iterator[tuple[int, str, Linear]]:
    """(layer, name, projection), in order."""
    for layer, block in enumerate(model.blocks):
        for name in get_args(Projection):
            linear = getattr(block, name, None) or getattr(block.mlp, name, None)
            if isinstance(linear, Linear) and (modules is None or name in modules):
                yield layer, name, linear


def _refuse(model: Transformer, config: LoraConfig) -> None:
    if has_adapters(model):
        raise ValueError("expected a model without adapters; got one that has some, in add_lora; add them once")
    found = {(layer, name) for layer, name, _ in _projections(model)}
    wanted = [(layer, name) for layer in range(len(model.blocks)) for name in config.modules or ()]
    absent = [(layer, name) for layer, name in wanted if (layer, name) not in found]
    if absent:
        left = tuple(dict.fromkeys(name for _, name in wanted if name not in {name for _, name in absent}))
        raise ValueError(
            "expected modules that are dense projections in every layer; got "
            + ", ".join(f"blocks.{layer}.{name}" for layer, name in absent)
            + f", which are none, in add_lora; a mixture of experts stands there: pass modules={left}, or None"
        )
