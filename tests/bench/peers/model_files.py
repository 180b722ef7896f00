"""The model as every peer wants it, with the same weights: those of the GGUF file, dequantised to float32.

Runs in the peers' environment. Arguments: GGUF file, folder to write ``f32.gguf``, ``f16.gguf`` and the Hugging Face folder
``hf`` into. Nothing of this project takes part, so that a mistake in its reader of GGUF shows as tokens that differ.

Source: llama.cpp, ``conversion/llama.py``, for names and for q and k, whose rows GGUF keeps in the order of rotary pairs.
"""

import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
BLOCK = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def write_gguf(reader: Any, arrays: dict[str, np.ndarray], half: bool, path: Path) -> None:
    """The same metadata, tokenizer included; matrices in float32 or float16, vectors in float32."""
    writer = gguf.GGUFWriter(path, "llama")
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name not in ("general.architecture", "general.file_type"):
            nested = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), field.types[0], sub_type=nested)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16 if half else gguf.LlamaFileType.ALL_F32)
    for name, array in arrays.items():
        writer.add_tensor(name, array.astype(np.float16) if half and array.ndim == 2 else array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_folder(reader: Any, arrays: dict[str, np.ndarray], path: Path) -> None:
    """What ``from_pretrained`` reads, without a tokenizer."""

    def get(key: str) -> Any:
        return reader.fields[f"llama.{key}"].contents()

    config = LlamaConfig(
        vocab_size=get("vocab_size"),
        hidden_size=get("embedding_length"),
        intermediate_size=get("feed_forward_length"),
        num_hidden_layers=get("block_count"),
        num_attention_heads=get("attention.head_count"),
        num_key_value_heads=get("attention.head_count_kv"),
        max_position_embeddings=get("context_length"),
        rms_norm_eps=get("attention.layer_norm_rms_epsilon"),
        rope_parameters={"rope_type": "default", "rope_theta": get("rope.freq_base")},
        tie_word_embeddings=True,
    )
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    state = {}
    for name, array in arrays.items():
        *block, part, _ = name.split(".")
        if part in heads:
            array = array.reshape(heads[part], -1, 2, array.shape[-1]).swapaxes(1, 2).reshape(array.shape)
        state[f"model.layers.{block[1]}.{BLOCK[part]}.weight" if block else f"{TOP[part]}.weight"] = torch.tensor(array)
    model = LlamaForCausalLM(config)
    model.load_state_dict({**state, "lm_head.weight": state["model.embed_tokens.weight"]})
    model.save_pretrained(path)


def main(source: str, folder: str) -> None:
    """Write all three."""
    reader = gguf.GGUFReader(source)
    arrays = {tensor.name: gguf.dequantize(tensor.data, tensor.tensor_type) for tensor in reader.tensors}
    write_gguf(reader, arrays, False, Path(folder) / "f32.gguf")
    write_gguf(reader, arrays, True, Path(folder) / "f16.gguf")
    write_folder(reader, arrays, Path(folder) / "hf")


if __name__ == "__main__":
    main(*sys.argv[1:])
