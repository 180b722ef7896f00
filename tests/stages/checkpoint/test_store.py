"""Arrays in folders, and the parameters of a model in the commits of a run."""

import logging
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from flow.saving import Commit, Commits
from stages.checkpoint.names import differences, from_named
from stages.checkpoint.store import load_arrays, load_model, load_parameters, save_arrays, save_model, with_parameters
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


def commit(commits: Commits, model: Pair | None, name: str = "model") -> Commit:
    draft = commits.begin()
    writes = [] if model is None else [save_model(model, draft.folder / name)]
    return commits.write(draft, {}, writes=writes)


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
    save_arrays(tmp_path / "both", (parameters, state))()
    blank = parameters_of(Pair(2, 1))
    saved = load_arrays(tmp_path / "both", (blank, optimizer.init(blank)))
    assert_equal_trees(step(*saved), step(parameters, state))


def test_arrays_of_every_type_come_back_as_they_were(tmp_path: Path):
    """Those in the host's memory too, where an optimizer may rest."""
    place = jax.devices()[0]
    tree = {
        "bfloat16": jnp.arange(3, dtype=jnp.bfloat16) / 3,
        "count": jnp.array(7, jnp.int32),
        "flag": jnp.array([True, False]),
        "special": jnp.array([np.nan, -0.0, np.inf], jnp.float32),
        "host": jax.device_put(jnp.arange(5.0), jax.sharding.SingleDeviceSharding(place, memory_kind="pinned_host")),
    }
    save_arrays(tmp_path / "all", tree)()
    saved = load_arrays(tmp_path / "all", tree)
    for name, leaf in tree.items():
        assert saved[name].dtype == leaf.dtype
        assert saved[name].sharding == leaf.sharding
        assert np.asarray(saved[name]).tobytes() == np.asarray(leaf).tobytes()


def test_saved_arrays_may_be_donated_at_once(tmp_path: Path):
    tree = {"w": jnp.arange(1000.0)}
    write = save_arrays(tmp_path / "w", tree)
    jax.block_until_ready(jax.jit(lambda tree: jax.tree.map(lambda w: w * 0, tree), donate_argnums=0)(tree))
    write()
    np.testing.assert_array_equal(load_arrays(tmp_path / "w", {"w": jnp.zeros(1000)})["w"], np.arange(1000.0))


def test_nothing_is_on_disk_before_it_is_written(tmp_path: Path):
    """A commit that is given up leaves nothing that goes on being written."""
    write = save_arrays(tmp_path / "deep" / "w", {"w": jnp.ones(4)})
    assert not list(tmp_path.iterdir())
    write()
    assert (tmp_path / "deep" / "w").is_dir()


def test_a_write_that_fails_says_so_and_can_be_done_again(tmp_path: Path, full_disk):
    """S98, S99: what failed is not taken for what was written."""
    write = save_arrays(tmp_path / "w", {"w": jnp.ones(4)})
    full_disk(1)
    with pytest.raises(OSError, match="w: expected 1 arrays to be written, got"):
        write()
    full_disk(None)
    assert not (tmp_path / "w").exists()
    write()
    np.testing.assert_array_equal(load_arrays(tmp_path / "w", {"w": jnp.zeros(4)})["w"], np.ones(4))


def test_parameters_load_into_a_model(tmp_path: Path):
    """Of the latest commit that has some, or of the one that is asked for."""
    models = [Pair(2, seed) for seed in range(3)]
    with Commits(tmp_path, keep=None) as commits:
        commit(commits, models[0])
        commit(commits, models[1], "trainer")
        commit(commits, None)
    assert [one.number for one in with_parameters(tmp_path)] == [1, 2]
    assert load_parameters(models[2], tmp_path) == 2
    assert_equal_trees(parameters_of(models[2]), parameters_of(models[1]))
    assert load_parameters(models[2], tmp_path, 1) == 1
    assert_equal_trees(parameters_of(models[2]), parameters_of(models[0]))


def test_parameters_that_a_commit_carries_on_are_found_where_nothing_is_trained(tmp_path: Path):
    """As in an evaluation that was suspended so often that the commit before it is gone. What is being trained goes first."""
    trained, carried, loaded = (Pair(2, seed) for seed in range(3))
    with Commits(tmp_path) as commits:
        commit(commits, carried, "beside begun/model")
        assert load_parameters(loaded, tmp_path) == 1
        assert_equal_trees(parameters_of(loaded), parameters_of(carried))
        draft = commits.begin()
        parts = {"beside begun/model": carried, "trainer": trained, "trainer/best/000001": carried}
        commits.write(draft, {}, writes=[save_model(model, draft.folder / name) for name, model in parts.items()])
    assert load_parameters(loaded, tmp_path) == 2
    assert_equal_trees(parameters_of(loaded), parameters_of(trained))


def test_a_commit_that_is_not_complete_is_never_chosen(tmp_path: Path):
    """S96: one being written beside those that count, and one that lost its manifest."""
    with Commits(tmp_path, keep=None) as commits:
        commit(commits, Pair(2, 0))
        commit(commits, Pair(2, 1))
        save_model(Pair(2, 2), commits.begin().folder / "model")()
        (tmp_path / "000002" / "manifest.json").unlink()
        assert load_parameters(Pair(2, 3), tmp_path) == 1


def test_a_commit_that_is_being_read_stays_until_it_was(tmp_path: Path):
    """Retention passes over it, and takes it with the next."""
    with Commits(tmp_path, keep=1) as commits:
        first = commit(commits, Pair(2, 0))
        with first.reading():
            commit(commits, Pair(2, 1))
            assert load_parameters(Pair(2, 2), tmp_path, 1) == 1
        commit(commits, Pair(2, 1))
        assert [one.number for one in with_parameters(tmp_path)] == [3]


def test_loading_goes_on_with_the_latest_where_the_one_it_chose_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The run retains while somebody reads: between the choice and the lock its commit may go."""
    with Commits(tmp_path, keep=1) as commits:
        commit(commits, Pair(2, 0))
        real, seen = Commit.reading, []

        def reading(self: Commit):
            if not seen:
                commit(commits, Pair(2, 1))
            seen.append(self.number)
            return real(self)

        monkeypatch.setattr(Commit, "reading", reading)
        model = Pair(2, 2)
        assert load_parameters(model, tmp_path) == 2
    assert seen == [1, 2]
    assert_equal_trees(parameters_of(model), parameters_of(Pair(2, 1)))


def test_loading_warns_of_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """That Orbax may not write there is what was asked for."""
    save_model(Pair(2, 0), tmp_path / "model")()
    caplog.clear()
    logger = logging.getLogger("absl")
    logger.addHandler(caplog.handler)
    try:
        load_model(Pair(2, 1), tmp_path / "model")
    finally:
        logger.removeHandler(caplog.handler)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_loading_changes_nothing_on_disk_beside_a_run_that_is_saving(tmp_path: Path):
    """What looks like the leftover of a crash may be the commit that a live run is writing."""
    model, other = Pair(2, 0), Pair(2, 1)
    with Commits(tmp_path, keep=None) as commits:
        for _ in range(3):
            commit(commits, model)
        for name in ("parameters", "parameters.orbax-checkpoint-tmp"):
            (tmp_path / "000004.part" / "model" / name).mkdir(parents=True)
            (tmp_path / "000004.part" / "model" / name / "part").write_text("half")
        before = {path: path.stat().st_mtime_ns for path in [tmp_path, *tmp_path.rglob("*")]}
        assert load_parameters(other, tmp_path) == 3
        assert load_parameters(other, tmp_path, 1) == 1
        assert {path: path.stat().st_mtime_ns for path in [tmp_path, *tmp_path.rglob("*")]} == before
    assert_equal_trees(parameters_of(other), parameters_of(model))


def test_loading_says_what_differs(tmp_path: Path):
    with Commits(tmp_path) as commits:
        commit(commits, Pair(2, 0))
    with pytest.raises(ValueError, match=r"layers.0.bias: expected float32 \(4,\), got float32 \(2,\)"):
        load_parameters(Pair(4, 0), tmp_path)
    with pytest.raises(ValueError, match="expected float16"):
        load_parameters(Pair(2, 0, jnp.float16), tmp_path)
    with pytest.raises(FileNotFoundError, match=r"expected one of the commits \[1\], got 8"):
        load_parameters(Pair(2, 0), tmp_path, 8)
    with pytest.raises(FileNotFoundError, match=r"optimizer: expected arrays, got no folder"):
        load_arrays(tmp_path / "000001" / "model" / "optimizer", {"count": jnp.zeros(())})


def test_loading_from_an_absent_folder_makes_none(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="expected a complete commit with the parameters of a model, got none"):
        load_parameters(Pair(2, 0), tmp_path / "absent")
    assert not (tmp_path / "absent").exists()
