"""New weights as folders that servers read: one a version, written whole under another name first, the last two kept."""

import shutil
from pathlib import Path
from typing import Any

from flax import nnx

from stages.models.huggingface import write_huggingface
from stages.models.lora import has_adapters, merged
from stages.models.transformer import Transformer
from stages.rollout.weights import matching_leaves

KEPT = 2
"""Folders that are kept: a server may still read the one before the newest."""


class Published:
    """Writes the parameters of one model.

    Args:
        model: whose layout they have; with adapters, it has the weights beneath them.
        folder: where they go; made if it is not there.
    """

    def __init__(self, model: Transformer, folder: Path) -> None:
        self._graph, own = nnx.split(model, nnx.Param)
        self._shapes, self._own, self._folder = own, own, folder.resolve()

    def write(self, parameters: Any, version: int) -> Path:
        """Write a version; gives its folder. Takes time for the disk: not for the event loop.

        Raises:
            ValueError: they do not fit the model, or no family of transformers holds its settings.
            OSError: the folder cannot be written.
        """
        import jax

        leaves = matching_leaves(self._shapes, parameters)
        kept = jax.tree.leaves(self._own)
        whole = [old if new is None else new for old, new in zip(kept, leaves, strict=True)]
        model = nnx.merge(self._graph, jax.tree.unflatten(jax.tree.structure(self._own), whole))
        folder = self._folder / f"version-{version:06}"
        part = folder.with_name(f"{folder.name}.part")
        for old in (part, folder):
            shutil.rmtree(old, ignore_errors=True)
        write_huggingface(merged(model) if has_adapters(model) else model, part)
        part.rename(folder)
        for old in sorted(self._folder.glob("version-??????"))[:-KEPT]:
            if old != folder:
                shutil.rmtree(old, ignore_errors=True)
        return folder
