"""How parameters and optimizer state are laid out on disk: arrays by name. Pure.

A flat mapping from dotted path to array, so that what is on disk does not depend on container types, and a difference between a
file and a model can be said in names.
"""

from collections.abc import Mapping
from typing import Any

import jax

from stages.models.names import named_leaves

Arrays = dict[str, Any]


def from_named(tree: Any, arrays: Mapping[str, Any]) -> Any:
    """The pytree again, with the arrays of a mapping that has exactly its names."""
    structure = jax.tree.structure(tree)
    return jax.tree.unflatten(structure, [arrays[name] for name in named_leaves(tree)])


def differences(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """What keeps ``found`` from filling ``wanted``: missing and extra names, other shapes, other dtypes; one line each."""
    problems = [f"missing: {name}" for name in wanted if name not in found]
    problems += [f"not in the model: {name}" for name in found if name not in wanted]
    for name in wanted:
        if name not in found:
            continue
        expected = (tuple(wanted[name].shape), str(wanted[name].dtype))
        got = (tuple(found[name].shape), str(found[name].dtype))
        if expected != got:
            problems.append(f"{name}: expected {expected[1]} {expected[0]}, got {got[1]} {got[0]}")
    return problems
