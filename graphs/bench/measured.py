"""Runs an experiment and says what its findings were made with: settings, machine, versions, load, time."""

import os
import platform
import time
from datetime import UTC, datetime

import jax
from pydantic import BaseModel

from graphs.bench.experiment import Experiment, Tell
from graphs.bench.kept import Kept, Machine
from graphs.doctor.machine import find_cores, find_memory
from graphs.runs.versions import package_versions


def measured(experiment: Experiment, config: BaseModel, command: str, tell: Tell, *, short: bool = False) -> Kept:
    """Run an experiment.

    Args:
        experiment: it.
        config: its settings.
        command: that makes the findings again.
        tell: hears how far it is.
        short: whether the settings are the short ones.
    """
    date, load, began = datetime.now(UTC), os.getloadavg()[0], time.perf_counter()
    findings = experiment.run(config, tell)
    seconds, load_after = time.perf_counter() - began, os.getloadavg()[0]
    return Kept(
        name=experiment.name,
        title=experiment.title,
        question=experiment.question,
        command=command,
        short=short,
        settings=config.model_dump(mode="json"),
        date=date.isoformat(timespec="seconds"),
        seconds=round(seconds, 3),
        load=round(load, 2),
        load_after=round(load_after, 2),
        machine=this_machine(),
        versions={"python": platform.python_version(), **package_versions()},
        holds=findings.holds,
        findings=findings,
    )


def this_machine() -> Machine:
    """The machine as this process sees it. Asked after measuring, since JAX takes the memory of its devices when it is."""
    devices = jax.devices()
    return Machine(
        system=f"{platform.system()} {platform.machine()}",
        cores=float(find_cores().values["cores"]),
        memory_bytes=int(find_memory().values["total_bytes"]),
        backend=devices[0].platform,
        device_kind=devices[0].device_kind,
        num_devices=len(devices),
    )
