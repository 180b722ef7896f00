"""Parameters against the tensors of a file: which tensor is which parameter, in which shape, and what does not fit.

Formats (``gguf.py``, ``huggingface.py``) say where a parameter is stored; filling, writing and checking are the same for all.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import jax
import numpy as np
from flax import nnx

from stages.models.names import is_adapter, named_leaves
from stages.models.transformer import Transformer


@dataclass(frozen=True)
class Stored:
    """Where one parameter lies in a file.

    Attributes:
        names: the tensor, or one tensor for each expert, to be stacked.
        turned: the file multiplies from the left, so it holds (out, in) where we hold (in, out).
        paired_heads: heads whose rows [D, I] the file keeps in neighbouring pairs (2i, 2i + 1); ``None`` for halves, as ours.
    """

    names: tuple[str, ...]
    turned: bool = False
    paired_heads: int | None = None

    def shape(self, ours: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of one tensor in the file, from the shape of the parameter."""
        one = ours if len(self.names) == 1 else ours[1:]
        return (*one[:-2], one[-1], one[-2]) if self.turned else one

    def read(self, tensor: Callable[[str], np.ndarray]) -> np.ndarray:
        """The parameter, from a function that gives tensors by name."""
        parts = [self._ours(tensor(name)) for name in self.names]
        return parts[0] if len(parts) == 1 else np.stack(parts)

    def write(self, value: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
        """The tensors of the file, from the parameter."""
        for name, part in zip(self.names, [value] if len(self.names) == 1 else value, strict=True):
            yield name, np.ascontiguousarray(self._theirs(part))

    def _ours(self, tensor: np.ndarray) -> np.ndarray:
        if self.paired_heads is not None:
            tensor = halved(tensor, self.paired_heads)
        return tensor.swapaxes(-1, -2) if self.turned else tensor

    def _theirs(self, part: np.ndarray) -> np.ndarray:
        tensor = part.swapaxes(-1, -2) if self.turned else part
        return tensor if self.paired_heads is None else paired(tensor, self.paired_heads)


Layout = Callable[[str], Stored]
"""Path of a parameter, as ``parameter_shapes`` gives it, to where it is stored."""


def halved(rows: np.ndarray, num_heads: int) -> np.ndarray:
    """Put the rows [N * D, I] of a projection, or its bias [N * D], from neighbouring pairs into halves."""
    split_N2DI = rows.reshape(num_heads, -1, 2, *rows.shape[1:])
    return split_N2DI.swapaxes(1, 2).reshape(rows.shape)


def paired(rows: np.ndarray, num_heads: int) -> np.ndarray:
    """Put rows, or a bias, from halves into neighbouring pairs: ``halved`` the other way round."""
    split_N2DI = rows.reshape(num_heads, 2, -1, *rows.shape[1:])
    return split_N2DI.swapaxes(1, 2).reshape(rows.shape)


def parameter_shapes(model: Transformer) -> dict[str, tuple[int, ...]]:
    """Shapes by path, ``blocks.0.query.kernel_IO``, without adapters."""
    named = named_leaves(nnx.state(model, nnx.Param))
    return {path: leaf.shape for path, leaf in named.items() if not is_adapter(path)}


def check_tensors(model: Transformer, layout: Layout, found: Mapping[str, tuple[int, ...]], where: object) -> None:
    """Compare the tensors of a file with what the model wants.

    Raises:
        ValueError: tensors are missing, unknown or of another shape; all of them are named.
    """
    problems, known = [], set()
    for path, shape in parameter_shapes(model).items():
        stored = layout(path)
        wanted = stored.shape(shape)
        for name in stored.names:
            known.add(name)
            if name not in found:
                problems.append(f"{name}: expected {list(wanted)}, got none")
            elif found[name] != wanted:
                problems.append(f"{name}: expected {list(wanted)}, got {list(found[name])}")
    problems += [f"{name}: unknown" for name in found if name not in known]
    if problems:
        raise ValueError(
            f"expected the tensors of a decoder with {model.config.num_layers} layers; got "
            + "; ".join(problems)
            + f"; in {where}; use a model whose configuration and tensors agree"
        )


def fill(model: Transformer, layout: Layout, tensor: Callable[[str], np.ndarray]) -> None:
    """Put a file's tensors into a model, one parameter after the other, in the model's dtype.

    Each goes to the devices where the model wants it, see ``sharding.shard``. Adapters are left alone.
    """
    state = nnx.state(model, nnx.Param)
    dtype = jax.dtypes.canonicalize_dtype(model.config.dtype)
    values = [
        leaf if is_adapter(path) else jax.device_put(layout(path).read(tensor).astype(dtype, copy=False), leaf.sharding)
        for path, leaf in named_leaves(state).items()
    ]
    nnx.update(model, jax.tree.unflatten(jax.tree.structure(state), values))
