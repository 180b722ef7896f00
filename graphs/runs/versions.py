"""What a run depended on, for its summary: packages, platform, and hashes of model, tokenizer and template."""

import hashlib
import platform
from importlib import metadata
from typing import Any

import jax
import numpy as np
from flax import nnx

from graphs.program import Program
from stages.models.transformer import Transformer
from stages.records import Message

_PACKAGES = (
    "headrace", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy", "msgspec", "pydantic", "transformers", "anyio",
    "perfetto",
)  # fmt: skip


def versions(program: Program) -> dict[str, Any]:
    """Collect them, before training changes the weights."""
    devices = jax.devices()
    found: dict[str, Any] = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "devices": f"{len(devices)} x {devices[0].device_kind} ({devices[0].platform})",
        "packages": package_versions(),
    }
    if program.parts is not None:
        found["model"] = _model_hash(program.parts.model)
        if program.parts.source is not None:
            found["model_source"] = {"name": program.parts.source.name, "commit": program.parts.source.commit}
        chat = program.parts.chat
        # Through the protocol alone: what every id reads as, and what a question with every tool is rendered to.
        found["tokenizer"] = _hash("\0".join(chat.decode(np.array([index])) for index in range(chat.vocab_size)))
        found["template"] = _hash(repr(chat.open([Message("user", "1")], program.parts.tools).tolist()))
    return found


def package_versions() -> dict[str, str]:
    """Of the packages whose version may change what comes out."""
    return {name: metadata.version(name) for name in _PACKAGES}


def _model_hash(model: Transformer) -> str:
    """Hash of shape and weights."""
    digest = hashlib.blake2b(model.config.model_dump_json().encode(), digest_size=8)
    for leaf in jax.tree.leaves(nnx.state(model, nnx.Param)):
        digest.update(np.ascontiguousarray(leaf).data)
    return digest.hexdigest()


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
