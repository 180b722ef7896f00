import logging
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from stages.checkpoint.names import differences, from_named
from stages.checkpoint.store import CheckpointStore, complete_steps, load_parameters
from stages.models.names import named_leaves


class Pair(nnx.Module):
    def __init__(self, width: int, seed: int, dtype: jnp.dtype = jnp.float32) -> None:
        rngs = nnx.Rngs(seed)
        self.layers = nnx.List([nnx.Linear(3, width, rngs=rngs, param_dtype=dtype) for _ in range(2)])


def parameters_of(model: Pair) -> nnx.State:
    return nnx.state(model, nnx.Param)


def assert_equal_trees(left: object, right: object) -> None:
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for one, other in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        np.testing.assert_array_equal(one, other)


@contextmanager
def full_disk() -> Iterator[None]:
    """Writes beyond the first byte of a file fail, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_names_are_dotted_paths_and_lead_back_to_the_tree():
    parameters = parameters_of(Pair(2, 0))
    named = named_leaves(parameters)
    assert sorted(named) == ["layers.0.bias", "layers.0.kernel", "layers.1.bias", "layers.1.kernel"]
    assert_equal_trees(from_named(parameters, named), parameters)


def test_differences_names_each_fault_once():
    wanted = {"a": np.zeros(2, np.float32), "b": np.zeros(3, np.float32), "c": np.zeros(1, np.float32)}
    found = {"a": np.zeros(2, np.float16), "b": np.zeros(4, np.float32), "d": np.zeros(1, np.float32)}
    assert differences(wanted, found) == [
        "missing: c",
        "not in the model: d",
        "a: expected float32 (2,), got float16 (2,)",
        "b: expected float32 (3,), got float32 (4,)",
    ]


def test_restored_state_takes_the_same_next_step_bit_for_bit(tmp_path: Path):
    """S100: parameters, moments and counts all come back; one more step equals that of the run that went on."""
    parameters = parameters_of(Pair(2, 0))
    optimizer = optax.adamw(1e-2)
    state = optimizer.init(parameters)

    def step(parameters, state):
        gradients = jax.tree.map(jnp.sin, parameters)
        updates, state = optimizer.update(gradients, state, parameters)
        return optax.apply_updates(parameters, updates), state

    parameters, state = step(parameters, state)
    with CheckpointStore(tmp_path) as store:
        store.save(1, parameters, state)
    blank = parameters_of(Pair(2, 1))
    with CheckpointStore(tmp_path) as store:
        saved = store.restore(blank, optimizer.init(blank))
    assert saved.step == 1
    assert_equal_trees(step(saved.parameters, saved.optimizer), step(parameters, state))


def test_only_the_last_steps_are_kept(tmp_path: Path):
    with CheckpointStore(tmp_path, keep=2) as store:
        for step in (1, 2, 3):
            store.save(step, {"w": jnp.full(2, step, jnp.float32)})
        store.wait()
        assert store.latest() == 3
        np.testing.assert_array_equal(store.restore({"w": jnp.zeros(2)}, step=2).parameters["w"], [2.0, 2.0])
    assert complete_steps(tmp_path) == [2, 3]


def test_a_half_written_step_is_never_chosen(tmp_path: Path):
    """S96: a folder of a step, or of one of its parts, that lacks its commit mark does not count."""
    with CheckpointStore(tmp_path, keep=None) as store:
        for step in (10, 20, 30):
            store.save(step, {"w": jnp.full(1, step, jnp.float32)})
    (tmp_path / "30" / "parameters" / "commit_success.txt").unlink()
    shutil.rmtree(tmp_path / "20" / "meta")
    (tmp_path / "40.orbax-checkpoint-tmp").mkdir()
    assert complete_steps(tmp_path) == [10]
    with CheckpointStore(tmp_path, keep=None) as store:
        assert store.restore({"w": jnp.zeros(1)}).parameters["w"].tolist() == [10.0]


def test_a_save_that_fails_in_the_background_is_reported_by_the_next_save(tmp_path: Path):
    """S99, S98: the failure is raised, the latest step is the one before, and the same step can be saved again."""
    with CheckpointStore(tmp_path) as store:
        store.save(10, {"w": jnp.ones(4)})
        store.wait()
        with full_disk():
            store.save(20, {"w": jnp.ones(4)})
            with pytest.raises(OSError, match=r"expected step 20 to be written.*latest complete step is 10"):
                store.save(30, {"w": jnp.ones(4)})
        assert store.latest() == 10
        store.save(20, {"w": jnp.ones(4)})
        store.save(30, {"w": jnp.ones(4)})
    assert complete_steps(tmp_path) == [20, 30]


def test_a_save_that_fails_in_the_background_is_reported_at_close(tmp_path: Path):
    """S99."""
    store = CheckpointStore(tmp_path)
    with full_disk(), pytest.raises(OSError, match="expected step 5 to be written"), store:
        store.save(5, {"w": jnp.ones(4)})
    store.close()


def test_a_step_that_is_not_new_is_refused(tmp_path: Path):
    with CheckpointStore(tmp_path) as store:
        store.save(2, {"w": jnp.ones(1)})
        with pytest.raises(ValueError, match="expected a step above 2, got 2"):
            store.save(2, {"w": jnp.ones(1)})


def test_saved_arrays_may_be_donated_at_once(tmp_path: Path):
    tree = {"w": jnp.arange(1000.0)}
    with CheckpointStore(tmp_path) as store:
        store.save(1, tree)
        jax.block_until_ready(jax.jit(lambda tree: jax.tree.map(lambda w: w * 0, tree), donate_argnums=0)(tree))
        store.wait()
        np.testing.assert_array_equal(store.restore({"w": jnp.zeros(1000)}).parameters["w"], np.arange(1000.0))


def test_parameters_load_into_a_model(tmp_path: Path):
    model, other = Pair(2, 0), Pair(2, 1)
    with CheckpointStore(tmp_path) as store:
        store.save(7, parameters_of(model))
    assert load_parameters(other, tmp_path) == 7
    assert_equal_trees(parameters_of(other), parameters_of(model))


def test_loading_warns_of_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """That Orbax may not write there is what was asked for."""
    with CheckpointStore(tmp_path) as store:
        store.save(7, parameters_of(Pair(2, 0)))
    caplog.clear()
    logger = logging.getLogger("absl")
    logger.addHandler(caplog.handler)
    try:
        load_parameters(Pair(2, 1), tmp_path)
    finally:
        logger.removeHandler(caplog.handler)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_loading_changes_nothing_on_disk_beside_a_run_that_is_saving(tmp_path: Path):
    """What looks like the leftover of a crash may be the step that a live run is writing."""
    model, other = Pair(2, 0), Pair(2, 1)
    with CheckpointStore(tmp_path, keep=None) as store:
        for step in (1, 2, 3):
            store.save(step, parameters_of(model))
    for name in ("4.orbax-checkpoint-tmp", "4.orbax-checkpoint-tmp-7"):
        (tmp_path / name / "parameters.orbax-checkpoint-tmp").mkdir(parents=True)
        (tmp_path / name / "parameters.orbax-checkpoint-tmp" / "part").write_text("half")
    before = {path: path.stat().st_mtime_ns for path in [tmp_path, *tmp_path.rglob("*")]}
    assert load_parameters(other, tmp_path) == 3
    assert load_parameters(other, tmp_path, step=1) == 1
    assert {path: path.stat().st_mtime_ns for path in [tmp_path, *tmp_path.rglob("*")]} == before
    assert_equal_trees(parameters_of(other), parameters_of(model))


def test_loading_says_what_differs(tmp_path: Path):
    with CheckpointStore(tmp_path) as store:
        store.save(7, parameters_of(Pair(2, 0)))
    with pytest.raises(ValueError, match=r"layers.0.bias: expected float32 \(4,\), got float32 \(2,\)"):
        load_parameters(Pair(4, 0), tmp_path)
    with pytest.raises(ValueError, match="expected float16"):
        load_parameters(Pair(2, 0, jnp.float16), tmp_path)
    with pytest.raises(FileNotFoundError, match=r"expected one of the steps \[7\], got 8"):
        load_parameters(Pair(2, 0), tmp_path, step=8)
    with pytest.raises(FileNotFoundError, match="expected a part 'optimizer'"), CheckpointStore(tmp_path) as store:
        store.restore(parameters_of(Pair(2, 0)), {"count": jnp.zeros(())})


def test_loading_from_an_absent_folder_makes_none(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="no complete step"):
        load_parameters(Pair(2, 0), tmp_path / "absent")
    assert not (tmp_path / "absent").exists()


def test_a_closed_store_is_refused(tmp_path: Path):
    with pytest.raises(RuntimeError, match="expected an open store"):
        CheckpointStore(tmp_path).save(1, {"w": jnp.ones(1)})
