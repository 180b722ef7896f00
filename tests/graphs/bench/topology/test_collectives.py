"""What compiled programs move, beside what is worked out by hand for programs whose communication is known."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from graphs.bench.topology.collectives import Collectives, read_collectives

ROOT = Path(__file__).parents[4]


def program(*lines: str, body: str = "") -> str:
    nested = f"%body (p: f32[8]) -> f32[8] {{\n{body}\n}}\n\n" if body else ""
    entry = "\n".join(f"  {line}" for line in lines)
    return f"HloModule jit_f\n\n{nested}ENTRY %main (p: f32[4,8]) -> f32[32,8] {{\n{entry}\n}}\n"


OVER_8 = "channel_id=1, replica_groups=mesh['axis_0'=8,'axis_1'=2] {'axis_0'}, dimensions={0}"


@pytest.mark.parametrize(
    ("line", "received"),
    [
        (f"%g = f32[32,8]{{1,0}} all-gather(%p), {OVER_8}", 32 * 8 * 4 * 7 // 8),
        (f"ROOT %r = bf16[32,8]{{1,0}} all-reduce(%p), {OVER_8}, to_apply=%add", 2 * 32 * 8 * 2 * 7 // 8),
        ("%s = f32[4,8]{1,0} reduce-scatter(%p), replica_groups={{0,1,2,3},{4,5,6,7}}, dimensions={0}", 4 * 8 * 4 * 3),
        ("%a = f32[4,8]{1,0} all-to-all(%p), replica_groups=[2,4]<=[8], dimensions={0}", 4 * 8 * 4 * 3 // 4),
        ("%c = s32[6]{0} collective-permute(%p), source_target_pairs={{0,1},{1,0}}", 6 * 4),
        (f"%b = (f32[32]{{0}}, f32[]) all-reduce(%p, %q), {OVER_8}, to_apply=%add", 2 * (32 + 1) * 4 * 7 // 8),
        (f"%t = (f32[4,8]{{1,0}}, f32[32,8]{{1,0}}) all-gather-start(%p), {OVER_8}", 32 * 8 * 4 * 7 // 8),
        ("%e = (f32[6]{0}, f32[6]{0}, u32[], u32[]) collective-permute-start(%p), source_target_pairs={{0,1}}", 24),
        ("%o = f32[32]{0} all-reduce(%p), replica_groups={{0},{1}}, to_apply=%add", 0),
        ("%f = f32[32,8]{1,0} fusion(%all-gather), kind=kLoop, calls=%fused", 0),
    ],
)
def test_each_device_receives_what_the_ring_algorithm_gives_it(line: str, received: int) -> None:
    assert read_collectives(program(line)).received_bytes == received


def test_what_stands_in_a_loop_is_counted_once_and_told() -> None:
    gather = f"  %g = f32[8]{{0}} all-gather(%p), {OVER_8}"
    found = read_collectives(program(f"%r = f32[8]{{0}} all-reduce(%p), {OVER_8}, to_apply=%add", body=gather))
    assert found == Collectives({"all-gather": 1, "all-reduce": 1}, 28 + 56, 1)


def test_devices_that_are_told_in_a_way_nobody_knows_are_refused() -> None:
    with pytest.raises(ValueError, match="expected a collective whose devices are told, got '%g = f32"):
        read_collectives(program("%g = f32[8]{0} all-gather(%p), replica_groups=round, dimensions={0}"))


SCRIPT = """
import json
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from graphs.bench.topology.collectives import collectives_of
from graphs.bench.topology.moved import moved
from stages.models.mesh import MeshConfig, make_mesh

def at(mesh, *axes):
    return jax.sharding.NamedSharding(mesh, P(*axes))

def program(source, target):
    x = jax.ShapeDtypeStruct((8, 16), jnp.float32, sharding=source)
    made = jax.jit(lambda x: x, out_shardings=target).lower(x).compile()
    y = jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=target)
    counted = moved([x], [y])
    return [collectives_of(made).received_bytes, counted.fullest_bytes, counted.received_bytes, counted.wanted_bytes]

mesh, other = make_mesh(MeshConfig(fsdp=4)), make_mesh(MeshConfig(fsdp=4), jax.devices()[4:])
x, y = (jax.ShapeDtypeStruct((8, 16), jnp.float32, sharding=at(m, "fsdp")) for m in (mesh, other))
apart = moved([x], [y])
print(json.dumps({
    "gathered": program(at(mesh, "fsdp"), at(mesh)),
    "turned": program(at(mesh, "fsdp"), at(mesh, None, "fsdp")),
    "same": program(at(mesh, "fsdp"), at(mesh, "fsdp")),
    "cut": program(at(mesh), at(mesh, "fsdp")),
    "apart": [apart.fullest_bytes, apart.received_bytes, apart.wanted_bytes],
}))
"""


@pytest.mark.slow
def test_counting_from_shardings_is_what_xla_moves_where_both_can_be_asked(tmp_path: Path) -> None:
    """An array of 512 bytes over four devices: each holds 128, and wants all of it, or a quarter of another cut."""
    (tmp_path / "script.py").write_text(SCRIPT)
    environment = {**os.environ, "JAX_NUM_CPU_DEVICES": "8", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, tmp_path / "script.py"], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout)
    assert found == {
        "gathered": [384, 384, 4 * 384, 4 * 512],
        "turned": [96, 96, 4 * 96, 512],
        "same": [0, 0, 0, 512],
        "cut": [0, 0, 0, 512],
        "apart": [128, 512, 512],
    }
