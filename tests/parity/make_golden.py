"""Golden files: tiny random checkpoints of each model family with the logits and greedy tokens that torch computes from them.

Needs torch==2.13.0 and transformers, of which the project does not depend on torch; made with transformers 5.24. To make
all files anew, or those of some cases, in an environment that has both:

    python tests/parity/make_golden.py [CASE ...]

Each ``golden/<case>/`` gets config.json and model.safetensors (or shards and their index) as ``save_pretrained`` writes them,
and golden.npz: ``ids`` int32 [2, T], ``logits`` float32 [2, T, V] of one float32 forward with eager attention, ``greedy`` int32
[2, 12], the likeliest continuation of the first 16 ids of each row. Whatever a reader could leave out unseen is random and
large enough to be seen: norms, biases, routers, caps, windows shorter than T. The seed is the first with which no best token
and no choice of experts is nearly tied, so that equal tokens are a fair thing to ask for. No test: tests only read the files.
"""

import itertools
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3TextConfig,
    LlamaConfig,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
    Qwen3MoeConfig,
)

GOLDEN = Path(__file__).with_name("golden")
REFERENCE = {"dtype": torch.float32, "attn_implementation": "eager", "experts_implementation": "eager"}
LENGTH, PROMPT, NEW = 40, 16, 12
LEAST_MARGIN = 0.02
"""Between the best logit and the second best, at each greedy step."""
LEAST_ROUTER_MARGIN = 0.002
"""Between the router logits of the last expert taken and the first one left."""
LEAST_DISTINCT = 5
"""Different tokens in each greedy row: a model that repeats one token shows little."""

SIZES = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 128,
}
"""With heads of 10 the waves are 6 tokens, which stays, 87, which lies in the ramp, and longer ones, stretched in full."""
LLAMA3 = LlamaConfig(
    **SIZES | {"max_position_embeddings": 1024},
    head_dim=10,
    rope_parameters=LLAMA3_ROPE,
    rms_norm_eps=1e-5,
    tie_word_embeddings=False,
)
EXPERTS = {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 12, "head_dim": 10}


@dataclass(frozen=True)
class Case:
    """A checkpoint to make."""

    config: PreTrainedConfig
    dtype: torch.dtype = torch.float32
    """Type of the stored weights."""
    shard: str = "1GB"
    """Largest file of weights."""


CASES = {
    "llama_tied": Case(LlamaConfig(**SIZES, rms_norm_eps=1e-5, tie_word_embeddings=True)),
    "llama3": Case(LLAMA3),
    "llama_sharded": Case(LLAMA3, shard="30KB"),
    "llama_bf16": Case(LLAMA3, dtype=torch.bfloat16),
    "qwen2": Case(Qwen2Config(**SIZES, rope_parameters={"rope_type": "default", "rope_theta": 1e6}, tie_word_embeddings=True)),
    "qwen3": Case(Qwen3Config(**SIZES, head_dim=10, rope_parameters={"rope_type": "default", "rope_theta": 1e6})),
    "qwen3_moe": Case(Qwen3MoeConfig(**SIZES, **EXPERTS, norm_topk_prob=True)),
    "qwen3_moe_raw": Case(
        Qwen3MoeConfig(
            **SIZES | {"num_hidden_layers": 4, "intermediate_size": 16},
            **EXPERTS,
            norm_topk_prob=False,
            decoder_sparse_step=2,
            mlp_only_layers=[1],
        )
    ),
    "gemma2": Case(
        Gemma2Config(
            **SIZES | {"num_hidden_layers": 3, "intermediate_size": 20},
            head_dim=10,
            query_pre_attn_scalar=5,
            attn_logit_softcapping=2.0,
            final_logit_softcapping=4.0,
            sliding_window=8,
        )
    ),
    "gemma3": Case(
        Gemma3TextConfig(
            **SIZES | {"num_hidden_layers": 4, "intermediate_size": 16},
            head_dim=10,
            query_pre_attn_scalar=5,
            sliding_window=8,
            layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
            rope_parameters={
                "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            },
        )
    ),
}


def random_model(case: Case, seed: int) -> PreTrainedModel:
    """A float32 model whose parameters are what ``case.dtype`` can hold."""
    generator = torch.Generator().manual_seed(seed)
    model = AutoModelForCausalLM.from_config(case.config, **REFERENCE).eval()
    gemma = case.config.model_type.startswith("gemma")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            mean, deviation = spread(name, parameter, gemma)
            drawn = mean + deviation * torch.randn(parameter.shape, generator=generator)
            parameter.copy_(drawn.to(case.dtype))
    return model


def spread(name: str, parameter: torch.Tensor, gemma: bool) -> tuple[float, float]:
    """Mean and standard deviation of a parameter."""
    if "norm" in name:
        return norm_mean(name) if gemma else 1.0, 0.2
    if name.endswith("bias"):
        return 0.0, 0.5
    if "embed_tokens" in name:
        return 0.0, 0.12 if gemma else 0.3
    gain = 2.0 if name.endswith(("lm_head.weight", "mlp.gate.weight")) else 1.5
    return 0.0, gain * parameter.shape[-1] ** -0.5


def norm_mean(name: str) -> float:
    """One less than what Gemma's norms scale by. Large ones after each part outweigh the embedding, so that tokens change."""
    if name == "model.norm.weight":
        return 2.0
    return 0.7 if ".post_" in name else 0.0


@torch.no_grad()
def greedy(model: PreTrainedModel, prompts: torch.Tensor) -> tuple[torch.Tensor, float]:
    """The likeliest tokens after the prompts [2, NEW], each from a forward of its own, and the smallest margin."""
    ids, margins = prompts, []
    for _ in range(NEW):
        best = model(input_ids=ids, use_cache=False).logits[:, -1].topk(2)
        margins.append((best.values[:, 0] - best.values[:, 1]).min().item())
        ids = torch.cat([ids, best.indices[:, :1]], dim=1)
    return ids[:, prompts.shape[1] :], min(margins)


@torch.no_grad()
def router_margin(model: PreTrainedModel, ids: torch.Tensor) -> float:
    """How far the nearest choice of experts was from another one; infinite without experts."""
    if not hasattr(model.config, "num_experts_per_tok"):
        return float("inf")
    taken = model.config.num_experts_per_tok
    routers = model(input_ids=ids, use_cache=False, output_router_logits=True).router_logits
    ordered = torch.cat([logits.sort(dim=-1, descending=True).values for logits in routers])
    return (ordered[:, taken - 1] - ordered[:, taken]).min().item()


def make(name: str, case: Case) -> None:
    """Write the folder of one case and print how far from ties it is."""
    for seed in itertools.count():
        model = random_model(case, seed)
        ids = torch.randint(case.config.vocab_size, (2, LENGTH), generator=torch.Generator().manual_seed(1000 + seed))
        tokens, margin = greedy(model, ids[:, :PROMPT])
        routed = min(router_margin(model, ids), router_margin(model, torch.cat([ids[:, :PROMPT], tokens], dim=1)))
        distinct = min(len(set(row.tolist())) for row in tokens)
        if margin > LEAST_MARGIN and routed > LEAST_ROUTER_MARGIN and distinct >= LEAST_DISTINCT:
            break
    with torch.no_grad():
        logits = model(input_ids=ids, use_cache=False).logits
    save(GOLDEN / name, case, model, {"ids": ids, "logits": logits, "greedy": tokens})
    size = sum(file.stat().st_size for file in (GOLDEN / name).iterdir())
    print(f"{name:14} seed {seed:3} greedy margin {margin:.3f} router margin {routed:.4f} distinct {distinct:2}", end=" ")
    print(f"logits sd {logits.std():.2f} range {logits.min():.1f} to {logits.max():.1f}, {size / 1000:.0f} kB", flush=True)


def save(folder: Path, case: Case, model: PreTrainedModel, golden: dict[str, torch.Tensor]) -> None:
    """Write a folder, and make sure that what lies there gives the golden logits."""
    shutil.rmtree(folder, ignore_errors=True)
    model.to(case.dtype).save_pretrained(folder, max_shard_size=case.shard)
    (folder / "generation_config.json").unlink(missing_ok=True)
    types = {"ids": np.int32, "logits": np.float32, "greedy": np.int32}
    np.savez_compressed(folder / "golden.npz", **{key: value.numpy().astype(types[key]) for key, value in golden.items()})
    stored = AutoModelForCausalLM.from_pretrained(folder, **REFERENCE).eval()
    with torch.no_grad():
        torch.testing.assert_close(stored(input_ids=golden["ids"]).logits, golden["logits"], rtol=0, atol=1e-6)


if __name__ == "__main__":
    for chosen in sys.argv[1:] or CASES:
        make(chosen, CASES[chosen])
