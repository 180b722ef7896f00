"""A decode step of the engine against what the machine allows, and against a plain JAX step written for nothing else.

The bound is what nothing can beat that reads every weight once a step: the larger of the weights' bytes at the memory rate and
the step's matrix products alone, both measured here, in the same rounds, on the same arrays. It leaves out the cache, norms,
attention and sampling. The plain step has the model's arithmetic written out, keeps one slot per row, writes the cache before
it reads it and takes the most likely token: no engine, no module, no random draw. Every figure is the median of rounds in which
they take turns. The shape is that of SmolLM2-135M in float32, with random weights: no value changes a time.
"""

import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from stages.models.config import ModelConfig
from stages.models.transformer import Transformer
from stages.rollout.config import EngineConfig
from stages.rollout.device import Device
from stages.rollout.sampling import no_draws, request_key
from stages.rollout.steps import Decode

MODEL = ModelConfig(
    vocab_size=49152, width=576, num_layers=30, num_heads=9, num_kv_heads=3, head_size=64, mlp_width=1536, context_length=8192
)
SLOTS = (1, 8, 32, 64)
CONTEXT = 256
AT = 128
"""Positions already in the cache of each slot."""
ROUNDS = 15


def main() -> None:
    """Prints a line for each number of slots, then the result as JSON."""
    model = Transformer(MODEL, nnx.Rngs(0))
    weights = [np.asarray(leaf) for leaf in jax.tree.leaves(nnx.state(model, nnx.Param))]
    num_bytes = sum(leaf.nbytes for leaf in weights)
    detail, worst_plain, worst_bound = {}, [], []
    for slots in SLOTS:
        seconds = in_turns(
            {
                "memory": memory(num_bytes),
                "products": products(model, slots),
                "plain": plain(model, slots),
                "engine": engine(model, slots),
            }
        )
        median = {name: statistics.median(values) for name, values in seconds.items()}
        bound = max(median["memory"], median["products"])
        of_plain = statistics.median(p / e for p, e in zip(seconds["plain"], seconds["engine"], strict=True))
        worst_plain.append(of_plain)
        worst_bound.append(bound / median["engine"])
        detail[str(slots)] = {
            "of_plain": of_plain,
            "of_bound": bound / median["engine"],
            "plain_of_bound": bound / median["plain"],
            "ms": {name: 1e3 * value for name, value in median.items()},
            "spread_ms": {name: [1e3 * min(values), 1e3 * max(values)] for name, values in seconds.items()},
            "gigabytes_per_s": num_bytes / median["memory"] / 1e9,
            "gigaflops_per_s": 2 * slots * num_bytes / 4 / median["products"] / 1e9,
        }
        print(
            f"{slots:3} slots: engine {1e3 * median['engine']:.1f} ms, plain {1e3 * median['plain']:.1f} ms, bound "
            f"{1e3 * bound:.1f} ms; {of_plain:.2f} of plain, {bound / median['engine']:.2f} of the bound",
            flush=True,
        )
    print(
        json.dumps(
            {
                "bench": "decode_roofline",
                "ratios": {"of_plain": min(worst_plain), "of_bound": min(worst_bound)},
                "targets": {"of_plain": 0.95, "of_bound": 0.55},
                "detail": detail,
            }
        )
    )


def in_turns(works: dict[str, Callable[[], Any]]) -> dict[str, list[float]]:
    """Seconds of each, one after the other, round after round; two rounds are not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for round_ in range(ROUNDS + 2):
        for name, work in works.items():
            begun = time.perf_counter()
            work()
            if round_ >= 2:
                seconds[name].append(time.perf_counter() - begun)
    return seconds


def compiled(function: Callable[..., Any], *arguments: Any, donate: tuple[int, ...] = ()) -> Callable[..., Any]:
    """The function for arguments of these shapes."""
    return jax.jit(function, donate_argnums=donate).lower(*arguments).compile()


def memory(num_bytes: int) -> Callable[[], Any]:
    """Reads as many bytes as the weights have."""
    array = jnp.zeros(num_bytes // 4, jnp.float32)
    program = compiled(jnp.sum, array)
    return lambda: program(array).block_until_ready()


def products(model: Transformer, slots: int) -> Callable[[], Any]:
    """The matrix products of a step and nothing between them."""
    matrices = [leaf for leaf in jax.tree.leaves(nnx.state(model.blocks, nnx.Param)) if leaf.ndim == 2]
    inputs = {size: jnp.ones((slots, size), jnp.float32) for size in {matrix.shape[0] for matrix in matrices}}
    table_VW = model.embedding_VW[...]

    def step(matrices: list[Any], inputs: dict[int, Any], table_VW: Any) -> Any:
        return [inputs[matrix.shape[0]] @ matrix for matrix in matrices], inputs[MODEL.width] @ table_VW.T

    program = compiled(step, matrices, inputs, table_VW)
    return lambda: jax.block_until_ready(program(matrices, inputs, table_VW))


def engine(model: Transformer, slots: int) -> Callable[[], Any]:
    """The engine's own step, its draw and the way to the host included."""
    device = Device(model, EngineConfig(slots=slots, context_length=CONTEXT, prefill_rows=1, prefill_chunk=8))
    device.open()
    ones_S = np.ones(slots, np.int32)
    draw = no_draws(slots)
    draw.keys_S2[:] = [request_key((0, 0, slot, 0, 0)) for slot in range(slots)]
    work = Decode(ones_S, AT * ones_S, ones_S, np.arange(slots, dtype=np.int32), draw)
    return lambda: device.decode(work)


def plain(model: Transformer, slots: int) -> Callable[[], Any]:
    """A step written out."""
    matrices = nnx.to_pure_dict(nnx.state(model, nnx.Param))
    shape = (slots, MODEL.num_kv_heads)
    cache = [
        (jnp.zeros((*shape, MODEL.head_size, CONTEXT), jnp.float32), jnp.zeros((*shape, CONTEXT, MODEL.head_size), jnp.float32))
        for _ in range(MODEL.num_layers)
    ]
    arguments = [np.ones(slots, np.int32), np.full(slots, AT, np.int32)]
    program = compiled(plain_step, matrices, cache, *arguments, donate=(1,))
    held = [cache]

    def work() -> tuple[np.ndarray, np.ndarray]:
        ids, logprobs, held[0] = program(matrices, held[0], *arguments)
        return np.asarray(ids), np.asarray(logprobs)

    return work


def plain_step(matrices: Any, cache: Any, ids_S: Any, at_S: Any) -> Any:
    """Llama's arithmetic for one token a slot, with the most likely token and its log-probability."""
    slots, size, heads = len(ids_S), MODEL.head_size, (MODEL.num_kv_heads, MODEL.num_heads // MODEL.num_kv_heads)
    frequencies = 10_000.0 ** (-jnp.arange(0, size, 2) / size)
    angles_SD = jnp.tile(at_S[:, None] * frequencies[None], (1, 2))
    cos_S1D, sin_S1D = jnp.cos(angles_SD)[:, None], jnp.sin(angles_SD)[:, None]

    def norm(x: Any, scale: Any) -> Any:
        return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5) * scale

    def turn(x_SND: Any) -> Any:
        first, second = jnp.split(x_SND, 2, -1)
        return x_SND * cos_S1D + jnp.concatenate([-second, first], -1) * sin_S1D

    x, every, new = matrices["embedding_VW"][ids_S], jnp.arange(slots), []
    seen_S11T = (jnp.arange(CONTEXT)[None] <= at_S[:, None])[:, None, None]
    for layer, (keys, values) in enumerate(cache):
        p = matrices["blocks"][layer]
        h = norm(x, p["attention_norm_W"])
        query, key, value = ((h @ p[name]["kernel_IO"]).reshape(slots, -1, size) for name in ("query", "key", "value"))
        keys = keys.at[every, :, :, at_S].set(turn(key))
        values = values.at[every, :, at_S].set(value)
        scores = jnp.einsum("skgd,skdt->skgt", turn(query).reshape(slots, *heads, size), keys) * size**-0.5
        mixed = jnp.einsum("skgt,sktd->skgd", jax.nn.softmax(jnp.where(seen_S11T, scores, -1e30), -1), values)
        x = x + mixed.reshape(slots, -1) @ p["output"]["kernel_IO"]
        h = norm(x, p["mlp_norm_W"])
        mlp = {name: part["kernel_IO"] for name, part in p["mlp"].items()}
        x = x + (jax.nn.silu(h @ mlp["gate"]) * (h @ mlp["up"])) @ mlp["down"]
        new.append((keys, values))
    logits_SV = norm(x, matrices["final_norm_W"]) @ matrices["embedding_VW"].T
    return jnp.argmax(logits_SV, -1), jnp.max(jax.nn.log_softmax(logits_SV, -1), -1), new


if __name__ == "__main__":
    main()
