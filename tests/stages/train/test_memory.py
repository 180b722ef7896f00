"""Which arrays live on the device, and which were given up for the next ones."""

import gc
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flow import testing

pytestmark = pytest.mark.slow  # Each setting compiles once, about a second.


def on_device() -> int:
    """Bytes of all arrays in the device's own memory."""
    gc.collect()
    live = [leaf for leaf in jax.live_arrays() if leaf.sharding.memory_kind != "pinned_host"]
    return sum(leaf.nbytes for leaf in live)


def deleted(tree: Any) -> set[bool]:
    return {leaf.is_deleted() for leaf in jax.tree.leaves(tree)}


@pytest.mark.parametrize(("dtype", "donated"), [(jnp.float32, False), (jnp.bfloat16, True)])
def test_parameters_are_given_up_only_where_others_are_published(trainer, batches, tiny, flat, dtype, donated):
    """State and sums always are. Of a model of both types all that is published stays readable, float32 leaves too."""
    one, context = trainer(tiny(dtype=dtype)), testing.context(node="trainer")
    one.open()
    published = [one.weights.parameters]
    values = [flat(published[0])]
    for seed in range(2):
        learner = one._learner
        before = learner.parameters, learner.state, learner.accumulated
        one.add(batches([3], seed)[0], context)
        published.append(one.finish(context).parameters)
        values.append(flat(published[-1]))
        assert [deleted(tree) for tree in before] == [{donated}, {True}, {True}]
    assert [deleted(tree) for tree in published] == [{False}] * 3
    for parameters, value in zip(published, values, strict=True):
        np.testing.assert_array_equal(flat(parameters), value)
    assert {leaf.dtype for leaf in jax.tree.leaves(published[-1])} == {jnp.dtype(dtype), jnp.dtype(jnp.float32)}
    assert not np.array_equal(values[1], values[2])
    one.close()


def test_an_optimizer_in_the_hosts_memory_leaves_the_devices_and_changes_no_number(
    trainer, train, batches, tiny, flat, tmp_path: Path
):
    """Bytes between updates: less by both moments. The same bits, also after a resume."""
    steps = [batches([3], seed) for seed in range(3)]
    used, expected = [], train(steps)
    for where in ("device", "host"):
        one, context = trainer(tiny(), optimizer_memory=where), testing.context(node="trainer")
        before = on_device()
        one.open()
        one.add(steps[0][0], context)
        one.finish(context)
        used.append(on_device() - before)
        state = one._learner.state
        kinds = {leaf.sharding.memory_kind for leaf in jax.tree.leaves(state)}
        assert kinds == {"device" if where == "device" else "pinned_host"}
        one.close()
        moments = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
        del one, state
    assert used[0] - used[1] == pytest.approx(moments, abs=16)  # a scalar here or there
    first = train(steps[:2], until=tmp_path / "kept", optimizer_memory="host")
    rest = train(steps[2:], since=tmp_path / "kept", optimizer_memory="host")
    for got, wanted in zip([*first.published, *rest.published], expected.published, strict=True):
        np.testing.assert_array_equal(flat(got), flat(wanted))


def test_a_step_of_several_updates_keeps_what_was_published_before_it(train, batches, tiny, flat):
    """Between its updates nobody has the parameters; those of the step before are somebody's still."""
    steps = [batches([2, 2], seed) for seed in range(2)]
    for dtype in (jnp.float32, jnp.bfloat16):
        ran = train(steps, model=tiny(dtype=dtype), num_epochs=2, num_minibatches=2)
        assert [deleted(tree) for tree in ran.published] == [{False}] * 2
        assert np.isfinite(flat(ran.published[0])).all()
