"""The experiment ``topology``: one training on the same devices, as one mesh, as two and as three."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import msgspec
from pydantic import BaseModel, ConfigDict, Field, model_validator

import graphs
from graphs.bench.experiment import Experiment, Findings, Tell
from graphs.bench.topology.child import TOLD
from graphs.bench.topology.findings import Simulated, findings_of
from graphs.bench.topology.job import ROLES, Budget, JobConfig
from graphs.bench.topology.report import Report
from graphs.bench.topology.simulated import SCHEDULES, SYNC, Layout, played
from stages.models.config import ModelConfig


class TopologyConfig(BaseModel):
    """Topologies, and what is trained on them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    budget: Budget = Budget()
    """Devices."""
    job: JobConfig = JobConfig()
    """The training."""
    efficiencies: tuple[float, ...] = (0.6, 0.7, 0.8, 0.9, 1.0)
    """Of what is simulated: what is left of the rate of a device each time that their number doubles, ascending; 1 is all."""
    same_shape: bool = True
    """Whether placements of meshes of one shape are compared too, which are to be equal to the bit."""
    optimized: bool = True
    """Whether XLA optimises what it compiles. Else it compiles in half the time, and what programs take is no measure."""
    sync_gbytes_per_s: float = Field(default=10.0, gt=0)
    """Of what is simulated: GB that a device receives in a second of a weight sync."""

    @model_validator(mode="after")
    def _efficiencies_ascend(self) -> Self:
        if (
            not self.efficiencies
            or list(self.efficiencies) != sorted(set(self.efficiencies))
            or not all(0 < each <= 1 for each in self.efficiencies)
        ):
            raise ValueError(
                f"expected ascending numbers above 0, up to 1, got {self.efficiencies}, in efficiencies; sort them"
            )
        return self


def run(config: TopologyConfig, tell: Tell) -> Findings:
    """Measure in a process with devices of its own, then simulate here."""
    report, told = measured(config, tell)
    tell(told, told + 1, "the same in virtual time")
    return findings_of(report, simulated(config, report))


def measured(config: TopologyConfig, tell: Tell) -> tuple[Report, int]:
    """Start the process with the devices, tell what it tells, and read its report.

    Returns:
        What it found, and how many things it told.

    Raises:
        RuntimeError: it failed.
    """
    path = os.pathsep.join([str(Path(graphs.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
    settings: dict[str, Any] = {
        "same_shape": config.same_shape,
        "budget": config.budget.model_dump(mode="json"),
        "job": config.job.model_dump(mode="json"),
    }
    command = [sys.executable, "-m", "graphs.bench.topology.child", msgspec.json.encode(settings).decode()]
    # Virtual devices need threads that wait for one another, more than there are cores. Accelerators are as many as they are.
    devices = {"JAX_NUM_CPU_DEVICES": str(config.budget.devices), "NPROC": str(2 * config.budget.devices)}
    slowly = {} if config.optimized else {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    environment = {**os.environ, **devices, **slowly, "PYTHONPATH": path}
    done, last = 0, ""
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            for last in process.stdout:
                if last.startswith(TOLD):
                    total, _, what = last.removeprefix(TOLD).strip().partition(" ")
                    tell(done, int(total) + 1, what)
                    done += 1
        except BaseException:
            process.kill()
            raise
        if status := process.wait():
            errors.seek(0)
            raise RuntimeError(
                f"expected a report of the process with the devices, got status {status}, in the experiment topology; look at "
                f"what it said:\n{errors.read()[-4000:]}"
            )
    return msgspec.json.decode(last, type=Report), done


def simulated(config: TopologyConfig, report: Report) -> Simulated:
    """Every topology on every schedule with every efficiency, and the run that was timed."""
    job, engine = config.job, config.job.timed_engine

    def layout(devices: Mapping[str, tuple[int, bool]], efficiency: float, load_s: float) -> Layout:
        return Layout(
            devices, efficiency, load_s, job.timed_slots, (engine.prefill_rows, engine.prefill_chunk), job.timed_concurrency,
            job.timed_groups, job.timed_steps,
        )  # fmt: skip

    alone = layout(dict.fromkeys(ROLES, (1, True)), 1.0, 0.0)
    found = {
        (efficiency, name, schedule.name): played(
            report.times,
            layout(
                {role: (number, each.shares[role]) for role, number in each.devices.items()}, efficiency,
                each.sync.engine.fullest_bytes / config.sync_gbytes_per_s / 1e9,
            ),
            schedule,
        )
        for efficiency in config.efficiencies
        for name, each in report.budget.items()
        for schedule in SCHEDULES
    }  # fmt: skip
    return Simulated(config.efficiencies, config.sync_gbytes_per_s, played(report.times, alone, SYNC), found)


TOPOLOGY = Experiment(
    name="topology",
    title="Topology: trainer, engine and reference on one mesh, on two, on three",
    question=(
        "Does it matter where the roles of a training run? On the same devices, all roles share one mesh, the engine has half "
        "of them for itself, or the engine and the reference each have a quarter. A few strictly on-policy steps of one "
        "training are compared, token by token and loss by loss; what a weight sync and each compiled program move is counted "
        "from the shardings and read from XLA's programs; memory is that of the arrays and of the compiler. How fast each is, "
        "is measured where there are accelerators, and simulated in virtual time with stage times measured on one device."
    ),
    config=TopologyConfig,
    short=TopologyConfig(
        budget=Budget(devices=4),
        job=JobConfig(
            model=ModelConfig(
                vocab_size=JobConfig().model.vocab_size, width=32, num_layers=1, num_heads=4, num_kv_heads=4, head_size=8,
                mlp_width=32, context_length=JobConfig().model.context_length,
            ),
            slots=4, timed_slots=8, taught_steps=0, groups_per_step=2, timed_steps=2, timed_groups=2, rows_per_microbatch=4,
        ),
        efficiencies=(0.8, 1.0), same_shape=False, optimized=False,
    ),
    run=run,
)  # fmt: skip
