"""The topologies on their short settings, and what is made of them: what holds at any speed."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pydantic import ValidationError

from graphs.bench.experiment import Findings
from graphs.bench.suite import EXPERIMENTS
from graphs.bench.topology.experiment import TOPOLOGY, TopologyConfig
from graphs.bench.topology.job import Budget, devices_by_role, moved_alone, topologies_of
from graphs.bench.topology.memory import devices_of, places_of
from graphs.bench.topology.placed_run import Placed
from graphs.bench.topology.report import beside
from graphs.bench.topology.simulated import AHEAD, ON_POLICY, SYNC, Layout, Played, Schedule, Script, Times, Turn, played
from graphs.placing import PlacingConfig
from graphs.report.plots import drawn

FAST = ("event model", "simulated and measured")
"""Parts of claims about the clock."""


@pytest.fixture(scope="module")
def found() -> tuple[Findings, list[tuple[int, int, str]]]:
    told: list[tuple[int, int, str]] = []
    return TOPOLOGY.run(TOPOLOGY.short, lambda done, total, what: told.append((done, total, what))), told


@pytest.mark.soak
def test_every_topology_comes_to_the_same_and_everything_on_the_devices_is_accounted_for(
    found: tuple[Findings, list[tuple[int, int, str]]],
) -> None:
    findings, told = found
    assert [each.what for each in findings.claims if each.holds is not True and not any(f in each.what for f in FAST)] == []
    assert [done for done, _, _ in told] == list(range(told[0][1]))
    assert {total for _, total, _ in told} == {len(told)}
    for table in findings.tables:
        assert table.rows
        assert all(row.keys() <= {column.name for column in table.columns} for row in table.rows)
    assert all("<svg" in drawn(plot).svg for plot in findings.plots)


@pytest.mark.soak
def test_bytes_and_memory_are_those_worked_out_from_the_shape_of_the_model(
    found: tuple[Findings, list[tuple[int, int, str]]],
) -> None:
    """Float32 weights; two moments of Adam, as large, and a count; keys and values of a layer for every slot and position."""
    findings, _ = found
    syncs, memory = ({(row["name"], row.get("roles")): row for row in findings.tables[at].rows} for at in (1, 3))
    job = TOPOLOGY.short.job  # type: ignore[attr-defined]
    width, mlp, vocab = job.model.width, job.model.mlp_width, job.model.vocab_size
    weights = 4 * (vocab * width + 4 * width * width + 3 * width * mlp + 3 * width) / 1e6
    assert {name for name, _ in syncs} == {"colocated", "two-way", "three-way"}
    for (name, _), row in syncs.items():
        assert row["weights"] == pytest.approx(weights, rel=0.02)
        assert row["shared"] == (name == "colocated")
        assert (row["received"] == 0) == (name == "colocated")
        assert (row["reference"] == 0) == (name != "three-way")
    assert syncs["three-way", None]["received"] == syncs["three-way", None]["weights"]  # one device, all of it
    cache = 2 * job.slots * job.model.context_length * job.model.num_kv_heads * job.model.head_size * 4 / 1e6
    alone = memory["three-way", "engine"]
    assert (alone["cache"], alone["engine"]) == (pytest.approx(cache), pytest.approx(weights, rel=0.02))
    assert memory["two-way", "engine"]["cache"] == pytest.approx(cache / 2)  # split by its heads
    for key in [("colocated", "trainer, engine, reference"), ("two-way", "trainer, reference"), ("three-way", "trainer")]:
        row = memory[key]
        assert row["optimizer"] == pytest.approx(2 * row["weights"], rel=0.01)
        assert row["gradient"] == pytest.approx(row["weights"], rel=0.05)
        assert row["most"] == pytest.approx(row["arrays"] + row["works"])


def test_it_is_in_the_suite() -> None:
    assert EXPERIMENTS["topology"] is TOPOLOGY


@pytest.mark.parametrize("devices", [2, 4, 8, 12])
def test_every_topology_has_the_same_devices(devices: int) -> None:
    def own(placing: PlacingConfig) -> int:
        meshes = (placing.mesh, placing.engine_mesh, placing.reference_mesh)
        return sum(mesh.size for mesh in meshes if mesh is not None)

    topologies = topologies_of(devices)
    assert {own(placing) for placing in topologies.values()} == {devices}
    assert list(topologies) == ["colocated", "two-way", "three-way"][: 3 if devices >= 4 else 2]
    for placing in moved_alone(devices).values():
        assert own(placing) <= devices
        assert len(set(devices_by_role(placing).values())) == 1


def test_devices_that_do_not_divide_by_four_and_efficiencies_that_do_not_ascend_are_refused() -> None:
    with pytest.raises(ValidationError, match="expected a multiple of 4, got 6"):
        Budget(devices=6)
    for wrong in ((), (1.0, 0.8), (0.5, 1.2), (0.0, 1.0)):
        with pytest.raises(ValidationError, match="expected ascending numbers above 0"):
            TopologyConfig(efficiencies=wrong)


def trained(ids: list[int], advantage: float = 1.0, loss: float = 0.5, digest: str = "a") -> Placed:
    arrays = {
        "ids": np.array(ids), "mask": np.ones(len(ids), bool), "advantages": np.full(len(ids), advantage, np.float32),
        "logprobs": np.zeros(len(ids), np.float32), "reference": np.zeros(len(ids), np.float32),
    }  # fmt: skip
    weights = {"w": np.full(3, advantage, np.float32)}
    return Placed(
        PlacingConfig(), losses=[loss], digests=[digest], segments=[{"s": arrays}], rewards=[[1.0]], parameters=weights
    )


def test_trainings_are_compared_to_the_bit_and_by_how_much_they_differ() -> None:
    same = beside(trained([1, 2]), trained([1, 2]))
    assert all(same.same.values())
    assert set(same.off.values()) == {0.0}
    off = beside(trained([1, 2]), trained([1, 2], 1.25, 0.625, "b"))
    assert [what for what, equal in off.same.items() if not equal] == ["advantages", "losses", "parameters"]
    assert (off.off["advantages"], off.off["losses"], off.off["parameters"]) == (0.25, 0.125, 0.25)


def test_where_other_tokens_were_trained_there_is_nothing_to_compare_token_by_token() -> None:
    other = beside(trained([1, 2]), trained([1, 3]))
    assert not other.same["tokens"]
    assert not other.same["logprobs"]
    assert other.off["logprobs"] is None
    assert other.off["losses"] == 0.0


def test_arrays_of_a_device_count_once_for_the_first_role_that_has_them() -> None:
    device, other = jax.devices()
    gone = places_of(jax.live_arrays())
    shared = jax.device_put(jnp.arange(100.0), device)
    apart, nobodys = jax.device_put(jnp.arange(10.0), other), jax.device_put(jnp.arange(7.0) + 1, other)
    roles = {"trainer": {"weights": [shared]}, "engine": {"weights": {"a": shared}, "cache": apart}}
    here, there = devices_of(roles, [], [device, other], gone)
    assert here.held_bytes == {"trainer: weights": 400, "engine: weights": 0}
    assert there.held_bytes == {"engine: cache": 40}
    assert (here.unknown_bytes, there.unknown_bytes, nobodys.nbytes) == (0, 28, 28)


TIMES = Times(
    prefill_s=0.0, decode_s=0.1, engine_host_s=0.0, score_s=0.0, gradient_s=0.5, update_s=1.0, finish_host_s=0.25, credit_s=0.0,
    episodes=((Script((Turn(0, 10, 0.0, 0.0),), 0.0),) * 4,) * 2,
)  # fmt: skip


def play(schedule: Schedule, devices: Mapping[str, tuple[int, bool]]) -> Played:
    """Two steps of two groups, whose eight episodes fit the engine at once."""
    layout = Layout(devices, 1.0, 0.0, slots=8, prefill=(8, 16), max_concurrency=8, groups_per_step=2, steps=2)
    return played(TIMES, layout, schedule)


APART = {"trainer": (1, True), "engine": (1, False), "reference": (1, False)}


def test_on_the_baseline_a_step_takes_its_episodes_and_then_its_training() -> None:
    """Ten decode steps of 0.1 s, two gradients, an update and the host, twice."""
    run = play(SYNC, APART)
    assert run.seconds == pytest.approx(2 * (10 * 0.1 + 2 * 0.5 + 1.0 + 0.25), rel=1e-5)
    assert run.groups_per_minute == pytest.approx(60 * 4 / run.seconds)
    assert run.busy["engine"] == pytest.approx(2.0 / run.seconds, rel=1e-5)
    assert run.busy["trainer"] == pytest.approx(4.0 / run.seconds)


def test_with_a_lag_the_engine_of_its_own_works_beside_the_trainer() -> None:
    """What it makes of the second step is ready before the trainer, which takes 2.25 s a step, is done with the first."""
    assert play(AHEAD, APART).seconds == pytest.approx(10 * 0.1 + 2 * 2.25, rel=1e-5)
    assert play(ON_POLICY, APART).seconds == pytest.approx(2 * (10 * 0.1 + 2.25), rel=1e-5)


def test_roles_that_share_devices_take_turns_and_more_devices_take_less_time_but_for_the_host() -> None:
    one = play(SYNC, dict.fromkeys(APART, (1, True)))
    assert one.seconds == pytest.approx(play(SYNC, APART).seconds)  # nothing overlaps there anyway
    assert play(AHEAD, dict.fromkeys(APART, (1, True))).seconds > play(AHEAD, APART).seconds
    assert play(SYNC, dict.fromkeys(APART, (4, True))).seconds == pytest.approx((one.seconds - 0.5) / 4 + 0.5, rel=1e-5)
