"""The process with the devices: ``python -m graphs.bench.topology.child``, settings as JSON in, a report as JSON out.

Where JAX finds two accelerators or more they are the devices; else they are virtual ones of the CPU, as many as were
asked for; this process starts itself anew for them, if it has to, since JAX fixes its devices when it first looks at them.
"""

import asyncio
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import msgspec

from graphs.bench.topology.job import (
    COLOCATED,
    Budget,
    JobConfig,
    devices_by_role,
    moved_alone,
    shares_of_roles,
    taught,
    topologies_of,
)
from graphs.bench.topology.placed_run import Placed, train
from graphs.bench.topology.report import Found, Report, beside
from graphs.bench.topology.timed import Rate, rate_of, rated, timed
from graphs.parts import Parts
from graphs.placing import PlacingConfig

Say = Callable[[str], None]
TOLD = "measured now: "
"""Before each line of progress on standard output, which is: so many in all, and what is measured now."""


async def measured(config: JobConfig, devices: int, tell: Say, *, same_shape: bool) -> Report:
    """All that needs the devices.

    Args:
        config: of the training.
        devices: of every topology.
        tell: hears how many things are measured, and what is measured now.
        same_shape: whether placements of meshes of one shape are compared.
    """
    first, topologies, placements = jax.devices()[0], topologies_of(devices), moved_alone(devices) if same_shape else {}
    virtual = first.platform == "cpu"
    total = 2 + len(topologies) + len(placements) + (0 if virtual else len(topologies))

    def say(what: str) -> None:
        tell(f"{total} {what}")

    say("a policy is taught to ask its tool, on one device")
    parts, values = await taught(config)
    budget = await _trained(config, parts, values, topologies, f"{devices} devices", say)
    alone = await _trained(config, parts, values, placements, "meshes of one shape", say)
    with tempfile.TemporaryDirectory() as folder:
        say("its stages are timed on one device")
        times, rate = await timed(config, parts, values, Path(folder))
        rates: dict[str, Rate] = {}
        for name, placing in () if virtual else topologies.items():
            say(f"{name} on {devices} devices: how fast it is")
            run, _, _ = await rated(config, parts, values, placing, Path(folder) / f"{name}.pftrace", sync=False)
            rates[name] = rate_of(run)
    return Report(first.platform, first.device_kind, devices, virtual, budget, alone, times, rate, rates)


async def _trained(
    config: JobConfig, parts: Parts, values: Any, topologies: Mapping[str, PlacingConfig], where: str, say: Say
) -> dict[str, Found]:
    found: dict[str, Placed] = {}
    for name, placing in topologies.items():
        say(f"{name}, {where}")
        found[name] = await train(config, parts, values, placing)
    return {name: _told(found[COLOCATED], each) for name, each in found.items()}


def _told(base: Placed, found: Placed) -> Found:
    assert found.sync is not None
    return Found(
        devices=devices_by_role(found.placing),
        shares=shares_of_roles(found.placing),
        losses=found.losses,
        digests=found.digests,
        num_segments=sum(map(len, found.segments)),
        beside=beside(base, found),
        sync=found.sync,
        memory=found.devices,
        collectives={f"{role}: {name}": each for (role, name), each in found.collectives.items()},
        loads=found.loaded_bytes / found.sync.weights_bytes,
    )


def devices_of_budget(asked: int) -> int | None:
    """Accelerators that a topology has; ``None`` where there are no two."""
    found = jax.device_count() if jax.default_backend() != "cpu" else 0
    most = min(asked, found)
    return None if most < 2 else most // 4 * 4 or 2


def main() -> None:
    """Measure, and print what was found as the last line."""
    settings = msgspec.json.decode(sys.argv[1])
    budget, config = Budget(**settings["budget"]), JobConfig(**settings["job"])
    devices = devices_of_budget(budget.devices)
    if devices is None and (jax.default_backend() != "cpu" or jax.device_count() != budget.devices):
        virtual = {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": str(budget.devices)}
        os.execve(
            sys.executable, [sys.executable, "-m", "graphs.bench.topology.child", *sys.argv[1:]], {**os.environ, **virtual}
        )

    def tell(what: str) -> None:
        sys.stdout.write(f"{TOLD}{what}\n")
        sys.stdout.flush()

    report = asyncio.run(measured(config, devices or budget.devices, tell, same_shape=settings["same_shape"]))
    sys.stdout.write(msgspec.json.encode(report).decode() + "\n")


if __name__ == "__main__":
    main()
