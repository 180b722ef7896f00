"""Values between processes, with the types that the stage declares, and what stages may return.

A value must come out as it went in, or be refused: a placement changes nothing that a stage can see.
"""

from typing import Any, Optional, cast

from .._codec import Codec
from .._errors import NotPortable
from .._item import Failed, Filtered, Many
from .._types import untyped
from .messages import Done


def port_codec(node: str, port: str, hint: Any, where: str = "") -> Codec:
    """Make the codec of one port.

    Args:
        node: name of the node.
        port: name of the port: ``in``, ``out`` or ``reads``.
        hint: type of its values.
        where: the user's own ``file:line``, or empty.

    Raises:
        NotPortable: the port is untyped, or msgpack cannot carry the type. So do the codec's methods for values.
    """

    def refuse(expected: str, got: str, remedy: str) -> NotPortable:
        return NotPortable(node, port, expected, got, where, remedy)

    return Codec(hint, refuse)


def optional(hint: Any) -> Any:
    """The type of the values of a cell, which holds ``None`` before it holds any."""
    return hint if untyped(hint) else Optional[hint]  # noqa: UP045 - not every hint knows the bar


def pack_outcome(codec: Codec, number: int, outcome: Any) -> tuple[Done, bytes]:
    """Write what a stage returned."""
    if isinstance(outcome, Many):
        return Done(number, "many"), codec.encode_many(cast("Many[Any]", outcome).values)
    if isinstance(outcome, Failed):
        failed = cast("Failed[Any]", outcome)
        return Done(number, "failed", failed.reason, failed.detail), codec.encode(failed.value)
    if isinstance(outcome, Filtered):
        return Done(number, "filtered", outcome.reason, outcome.detail), b""
    return Done(number), codec.encode(outcome)


def unpack_outcome(codec: Codec, done: Done, body: memoryview) -> Any:
    """Read what a stage returned."""
    if done.outcome == "plain":
        return codec.decode(body)
    if done.outcome == "many":
        return Many(codec.decode_many(body))
    if done.outcome == "failed":
        return Failed(codec.decode(body), done.reason, done.detail)
    return Filtered(done.reason, done.detail)
