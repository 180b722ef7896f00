"""How NumPy arrays are written: what a commit, a journal or a process gets is what comes out, dtype and shape included.

For ``flow``, which knows no arrays. Arrays of JAX are none of these: what lies on devices is no item, and goes into a commit by
a stage's ``save``.
"""

from typing import Any

import msgspec
import numpy as np

from flow.saving import Hooks

CODE = 1
"""Of the msgpack extension."""


class _Head(msgspec.Struct, frozen=True, array_like=True):
    dtype: str
    shape: tuple[int, ...]


_SCALARS = "biuf"
_HEAD = msgspec.msgpack.Decoder(_Head)


def write_array(value: Any) -> Any:
    """Give what stands for an array, or for a scalar of NumPy, which becomes the number of Python that equals it.

    Raises:
        NotImplementedError: it is neither, or of a dtype whose bytes do not say all, such as objects or records.
    """
    if isinstance(value, np.generic) and value.dtype.kind in _SCALARS and value.dtype.itemsize <= 8:
        return value.item()
    if type(value) not in (np.ndarray, np.memmap) or value.dtype.hasobject or value.dtype.fields is not None:
        kind = (
            f"{type(value).__name__} of {value.dtype}" if isinstance(value, np.ndarray | np.generic) else type(value).__name__
        )
        raise NotImplementedError(f"expected an array of numbers, got {kind}")
    # Of types that NumPy does not know itself, such as bfloat16, ``str`` says the size alone.
    dtype = value.dtype.name if value.dtype.kind == "V" else value.dtype.str
    head = msgspec.msgpack.encode(_Head(dtype, value.shape))
    return msgspec.msgpack.Ext(CODE, b"".join((len(head).to_bytes(2, "little"), head, value.tobytes())))


def read_array(code: int, body: memoryview) -> Any:
    """Give the array, writable and with memory of its own.

    Raises:
        ValueError: the bytes are those of none.
    """
    if code != CODE:
        raise ValueError(f"expected an array, with code {CODE}, got an extension with code {code}")
    start = 2 + int.from_bytes(body[:2], "little")
    head = _HEAD.decode(body[2:start])
    array = np.empty(head.shape, np.dtype(head.dtype))
    if array.nbytes != len(body) - start:
        raise ValueError(f"expected {array.nbytes} bytes of {head.dtype} {list(head.shape)}, got {len(body) - start}")
    array.reshape(-1).view(np.uint8)[:] = np.frombuffer(body[start:], np.uint8)
    return array


ARRAYS = Hooks(write=write_array, read_ext=read_array)
"""For whatever saves records of this library."""
