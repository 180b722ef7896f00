"""Arrays through bytes: dtype, shape and every bit come back, and what would not is refused."""

import math
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra import numpy as arrays

from stages.arrays import ARRAYS, CODE

ENCODE = msgspec.msgpack.Encoder(enc_hook=ARRAYS.write).encode
DECODE = msgspec.msgpack.Decoder(np.ndarray, ext_hook=ARRAYS.read_ext).decode
ANY = msgspec.msgpack.Decoder(ext_hook=ARRAYS.read_ext).decode
DTYPES = arrays.scalar_dtypes() | arrays.unicode_string_dtypes() | arrays.byte_string_dtypes()


def assert_same(before: np.ndarray, after: np.ndarray) -> None:
    assert (after.dtype, after.shape, after.tobytes()) == (before.dtype, before.shape, before.tobytes())
    assert type(after) is np.ndarray
    assert after.flags.writeable


@given(arrays.arrays(DTYPES, arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)))
def test_an_array_comes_out_as_it_went_in(array: np.ndarray):
    assert_same(array, DECODE(ENCODE(array)))


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((), np.float32),
        np.zeros((0, 5), bool),
        np.arange(6, dtype=np.int32).reshape(2, 3).T,
        np.arange(10)[::3],
        np.array([1.5, math.nan], ml_dtypes.bfloat16),
        np.array([1, 2], ">i4"),
    ],
    ids=["no axes", "empty", "turned", "with gaps", "bfloat16", "other byte order"],
)
def test_shapes_and_types_of_every_kind_come_out_as_they_went_in(array: np.ndarray):
    assert_same(array, DECODE(ENCODE(array)))


def test_what_is_read_has_memory_of_its_own():
    """A commit is read from one block of bytes: who changes an array changes no other."""
    body = bytearray(ENCODE(np.ones(3)))
    array = DECODE(body)
    body[-24:] = bytes(24)
    assert array.tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("number", [np.float64(1.5), np.float32(0.1), np.int64(-3), np.uint8(3), np.bool_(True)])
def test_a_scalar_of_numpy_becomes_the_number_that_equals_it(number: Any):
    """As a reward function gives one where a record says ``float``."""
    again = ANY(ENCODE(number))
    assert type(again) in (bool, int, float)
    assert again == number


@pytest.mark.parametrize(
    "value",
    [np.array([object()]), np.zeros(2, [("a", "i4")]), np.ma.zeros(3), np.longdouble(1.5), jnp.zeros(2), object()],
    ids=["objects", "records", "masked", "long double", "jax", "something else"],
)
def test_what_would_not_come_back_is_refused(value: Any):
    """What lies on devices is saved by whoever owns it, and is never an item."""
    with pytest.raises(NotImplementedError, match="expected an array of numbers, got"):
        ENCODE(value)


def test_other_bytes_are_refused():
    with pytest.raises(ValueError, match=r"expected 16 bytes of <f8 \[2\], got 15"):
        DECODE(msgspec.msgpack.encode(msgspec.msgpack.Ext(CODE, msgspec.msgpack.decode(ENCODE(np.zeros(2))).data[:-1])))
    with pytest.raises(ValueError, match="got an extension with code 9"):
        DECODE(msgspec.msgpack.encode(msgspec.msgpack.Ext(9, b"")))
    with pytest.raises(msgspec.ValidationError, match=r"Expected `numpy.ndarray`, got `array`|`list`"):
        DECODE(msgspec.msgpack.encode([1, 2]))
