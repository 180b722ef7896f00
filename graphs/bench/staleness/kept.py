"""Warm starts and trainings of the study as files, each written when it is done, so that a study that is interrupted goes on.

They lie in a folder named for all that they depend on: settings of the program, code, kind of machine. Change any, and they are
made again. What is written is there whole or not at all.
"""

import hashlib
import os
import platform
import shutil
from pathlib import Path
from typing import Any, TypeVar

import msgspec

import flow
import graphs
import stages
from graphs.bench.staleness.settings import StalenessConfig, program_config
from graphs.bench.staleness.trained import Trained, Wanted
from graphs.doctor.machine import find_cores
from graphs.parts import Parts
from graphs.runs.versions import package_versions
from stages.checkpoint.store import load_model, save_model
from stages.scores import Score

Record = TypeVar("Record")


class Kept:
    """What was done of one seed.

    Args:
        config: of the study.
        seed: one of its seeds.
    """

    def __init__(self, config: StalenessConfig, seed: int) -> None:
        self._folder = config.folder.absolute() / _identity(config, seed)

    def warm_start(self, parts: Parts) -> bool:
        """Fill the model with the weights of the warm start; gives whether there are any."""
        if not self._weights.is_dir():
            return False
        parts.load()  # so that there is something to be filled
        load_model(parts.model, self._weights)
        return True

    def keep_warm_start(self, parts: Parts) -> None:
        """Write the weights of the model as those of the warm start.

        Raises:
            OSError: they could not be written.
        """
        save_model(parts.model, self._weights)()

    def start(self) -> Score | None:
        """The score of the warm start; ``None`` where it is not known yet."""
        return _read(self._folder / "start.json", Score)

    def keep_start(self, score: Score) -> None:
        """Write it."""
        _write(self._folder / "start.json", score)

    def training(self, wanted: Wanted) -> Trained | None:
        """A training that was done; ``None`` where it was not."""
        return _read(self._folder / f"{wanted.name}.json", Trained)

    def keep_training(self, found: Trained) -> None:
        """Write a training."""
        _write(self._folder / f"{found.wanted.name}.json", found)

    def remove(self) -> None:
        """Remove all of it."""
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def _weights(self) -> Path:
        return self._folder / "warm"


def _identity(config: StalenessConfig, seed: int) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for package in (flow, stages, graphs):
        (root,) = package.__path__
        for file in sorted(Path(root).rglob("*.py")):
            digest.update(f"{package.__name__}/{file.relative_to(root)}".encode() + file.read_bytes())
    machine = platform.system(), platform.machine(), find_cores().values["cores"]
    settings = program_config(config, seed).model_dump_json(), config.evaluate_every
    digest.update(repr((machine, package_versions(), settings)).encode())
    return f"seed-{seed}-{digest.hexdigest()}"


def _write(file: Path, record: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(f".{os.getpid()}.part")
    part.write_bytes(msgspec.json.encode(record))
    part.replace(file)


def _read(file: Path, kind: type[Record]) -> Record | None:
    return msgspec.json.decode(file.read_bytes(), type=kind) if file.is_file() else None
