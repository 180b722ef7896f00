"""Does a tree of parameters fit the one in force? Pure; the engine asks before it takes new weights."""

from typing import Any

import jax

from stages.models.names import is_adapter, named_leaves


def matching_leaves(expected: Any, given: Any) -> list[Any]:
    """The leaves of ``given`` in the order of ``expected``: all of them, or exactly the adapters, with ``None`` for the rest.

    Trees are compared by the names on the way to each leaf, so an ``nnx.State`` and the plain dict made of it match.

    Raises:
        ValueError: a parameter is missing, unknown, deleted, or of another shape or dtype; all of them are named.
    """
    everything, offered = named_leaves(expected), named_leaves(given)
    adapters = {name: leaf for name, leaf in everything.items() if is_adapter(name)}
    wanted = adapters if adapters and offered and all(map(is_adapter, offered)) else everything
    problems = [f"{name}: missing" for name in wanted if name not in offered]
    problems += [f"{name}: unknown" for name in offered if name not in wanted]
    for name in wanted.keys() & offered.keys():
        want, offer = _describe(wanted[name]), _describe(offered[name])
        if is_gone(offered[name]):
            problems.append(f"{name}: deleted; it was donated to somebody")
        elif want != offer:
            problems.append(f"{name}: expected {want}, got {offer}")
    if problems:
        raise ValueError(
            "expected weights in the layout of the engine's model; got " + "; ".join(sorted(problems)) + "; in engine.load, "
            "the old version stays in force; publish the parameters of a model with the same config"
        )
    return [offered.get(name) for name in everything]


def is_gone(leaf: Any) -> bool:
    """Whether an array was donated or deleted. Such a one must not even be asked whether it is ready: that ends the process."""
    return isinstance(leaf, jax.Array) and leaf.is_deleted()


def _describe(leaf: Any) -> str:
    shape = getattr(leaf, "shape", None)
    return f"{getattr(leaf, 'dtype', type(leaf).__name__)}{list(shape) if shape is not None else ''}"
