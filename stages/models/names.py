"""Names of the arrays of a pytree: dotted paths, by which files, checkpoints, loads and errors speak of them. Pure."""

from typing import Any

import jax


def path_of(at: tuple[Any, ...]) -> str:
    """Dotted path of a leaf: ``blocks.0.query.kernel_IO``.

    Args:
        at: its keys, as ``jax.tree_util.tree_flatten_with_path`` gives them.
    """
    # NNX variables add a last key of their own, which plain trees do not have.
    return jax.tree_util.keystr(at, simple=True, separator=".").removesuffix(".value")


def named_leaves(tree: Any) -> dict[str, Any]:
    """Each leaf of a pytree under its dotted path, in tree order. A state and the plain dict made of it are named alike."""
    return {path_of(at): leaf for at, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def is_adapter(path: str) -> bool:
    """Whether a parameter's path is that of a LoRA adapter, see ``linear.py``."""
    return path.rpartition(".")[2].startswith("lora_")
