"""Bounds of packages are read from real metadata, of distributions made for the test."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from graphs.doctor.packages import find_packages, lacking, lacks_of_extras, read_declared

ROOT = Path(__file__).parents[3]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``engine`` 1.4, whose extra ``chip`` wants a driver and a library that are not there, and one that is."""
    for name, version, more in (
        ("engine", "1.4", 'Provides-Extra: chip\nRequires-Dist: driver[fast]<2,>=1; extra == "chip"\n'
                          'Requires-Dist: library==3; extra == "chip"\nRequires-Dist: engine-core>=1; extra == "chip"\n'
                          'Requires-Dist: anything\n'),
        ("engine-core", "1.0", ""),
        ("library", "2.0", ""),
    ):  # fmt: skip
        folder = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{more}")
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("installed")
def test_what_is_missing_or_out_of_bounds_is_told_with_what_there_is() -> None:
    assert list(lacking(Requirement("engine>=1"))) == []
    assert list(lacking(Requirement("engine>=2"))) == [("engine>=2", "1.4")]
    assert list(lacking(Requirement("absent>=2"))) == [("absent>=2", "none")]


@pytest.mark.usefixtures("installed")
def test_an_extra_of_a_package_is_looked_into() -> None:
    """As ``jax[cuda12]``, whose own requirements are what is missing."""
    assert list(lacking(Requirement("engine[chip]>=1"))) == [("driver[fast]<2,>=1", "none"), ("library==3", "2.0")]


def test_the_accelerators_are_extras_of_jax() -> None:
    extras = read_declared().extras
    assert [extras[name] for name in ("cuda12", "tpu")] == [["jax[cuda12]>=0.9"], ["jax[tpu]>=0.9"]]
    assert set(lacks_of_extras(read_declared())) == set(extras)


def test_in_a_source_tree_the_bounds_are_those_of_the_tree_and_elsewhere_those_that_are_installed(tmp_path: Path) -> None:
    tree, installed = read_declared(), read_declared(tmp_path)
    assert list(tree.packages) == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert {Requirement(line).name for line in installed.packages} >= {"jax", "flax", "anyio"}
    assert "gguf" in installed.extras


def test_this_environment_is_within_its_bounds() -> None:
    assert {finding.what: finding.level for finding in find_packages()} == {
        "python": "ok", "headrace": "ok", "packages": "ok", "extras": "ok"
    }  # fmt: skip


def test_a_package_that_hides_one_of_ours_is_a_fault(tmp_path: Path) -> None:
    """Their names are common words: a folder ``flow`` where one starts comes first."""
    (tmp_path / "flow").mkdir()
    (tmp_path / "flow" / "__init__.py").write_text("")
    code = (
        "from graphs.doctor.packages import find_packages as f; print([(x.found, x.remedy) for x in f() if x.level == 'fault'])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60,
                          env={"PYTHONPATH": f"{tmp_path}:{ROOT}"})  # fmt: skip
    assert f"'flow' from {tmp_path / 'flow'}" in done.stdout, done.stderr
    assert "PYTHONPATH" in done.stdout
