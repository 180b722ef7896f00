"""Versions of Python and of the packages against the bounds that headrace declares, and what each extra lacks.

The bounds are those of ``pyproject.toml`` where headrace runs from its source, whose installed metadata may be older, and else
those of the installed package.
"""

import importlib.metadata
import importlib.util
import platform
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from graphs.doctor.finding import Finding

if TYPE_CHECKING:
    from packaging.requirements import Requirement

NAME = "headrace"
OURS = ("flow", "stages", "graphs")
_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Declared:
    """What headrace says it needs.

    Attributes:
        version: of headrace.
        python: bounds of Python's version.
        packages: requirements of every run.
        extras: requirements by the name of the extra.
    """

    version: str
    python: str
    packages: Sequence[str]
    extras: Mapping[str, Sequence[str]]


def find_packages() -> list[Finding]:
    """Python, headrace, its packages, its extras."""
    declared = read_declared()
    try:
        import packaging.requirements  # noqa: F401 - a package like the others, which may be what is missing
    except ImportError:
        return [
            Finding("python", "ok", _python()),
            Finding("packages", "fault", "expected the package 'packaging', got none", "pip install --upgrade headrace"),
        ]
    return [_of_python(declared), *_of_ours(declared), _of_packages(declared), _of_extras(declared)]


def read_declared(root: Path = _ROOT) -> Declared:
    """What headrace declares.

    Args:
        root: the folder that its packages lie in.
    """
    file = root / "pyproject.toml"
    project = tomllib.loads(file.read_text())["project"] if file.is_file() else {}
    if project.get("name") == NAME:
        return Declared(
            project["version"], project["requires-python"], project["dependencies"], project["optional-dependencies"]
        )
    return _installed()


def _installed() -> Declared:
    from packaging.requirements import Requirement

    metadata = importlib.metadata.metadata(NAME)
    needed = [Requirement(line) for line in importlib.metadata.requires(NAME) or ()]
    extras = {name: [str(one) for one in needed if _only_with(one, name)] for name in metadata.get_all("Provides-Extra") or ()}
    base = [str(one) for one in needed if one.marker is None or one.marker.evaluate({"extra": ""})]
    return Declared(metadata["Version"], metadata["Requires-Python"], base, extras)


def lacking(requirement: "Requirement") -> Iterator[tuple[str, str]]:
    """What is missing or out of bounds for a requirement, those of its extras included.

    Yields:
        What is wanted, as pip takes it, and what there is.
    """
    from packaging.requirements import Requirement

    try:
        found = importlib.metadata.distribution(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        yield f"{requirement.name}{_extras_of(requirement)}{requirement.specifier}", "none"
        return
    if not requirement.specifier.contains(found.version, prereleases=True):
        yield f"{requirement.name}{requirement.specifier}", found.version
    for extra in sorted(requirement.extras):
        for inner in map(Requirement, found.requires or ()):
            if _only_with(inner, extra):
                yield from lacking(inner)


def _only_with(requirement: "Requirement", extra: str) -> bool:
    marker = requirement.marker
    return marker is not None and marker.evaluate({"extra": extra}) and not marker.evaluate({"extra": ""})


def _extras_of(requirement: "Requirement") -> str:
    return f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""


def _python() -> str:
    return f"{platform.python_version()} ({platform.system()} {platform.machine()}), {sys.executable}"


def _of_python(declared: Declared) -> Finding:
    from packaging.specifiers import SpecifierSet

    values = {"version": platform.python_version(), "executable": sys.executable, "platform": platform.platform()}
    if SpecifierSet(declared.python).contains(platform.python_version(), prereleases=True):
        return Finding("python", "ok", _python(), values=values)
    found = f"expected Python {declared.python}, got {_python()}"
    return Finding("python", "fault", found, "make an environment with a newer one", values)


def _of_ours(declared: Declared) -> Iterator[Finding]:
    """headrace, and whether another package hides one of its own: their names are common words."""
    places = {name: _place(name) for name in OURS}
    values = {"version": declared.version, "places": {name: str(place) for name, place in places.items()}}
    hidden = [f"'{name}' from {place}" for name, place in places.items() if place != _ROOT / name]
    if not hidden:
        yield Finding("headrace", "ok", f"{declared.version}, in {_ROOT}", values=values)
        return
    found = f"expected the packages {', '.join(OURS)} in {_ROOT}, got {' and '.join(hidden)}"
    yield Finding("headrace", "fault", found, "start elsewhere, or take what hides it off PYTHONPATH", values)


def _place(name: str) -> Path | None:
    spec = importlib.util.find_spec(name)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


def _of_packages(declared: Declared) -> Finding:
    from packaging.requirements import Requirement

    needed = [Requirement(line) for line in declared.packages]
    versions = {one.name: _version(one.name) for one in needed}
    wrong = [pair for one in needed for pair in lacking(one)]
    if not wrong:
        shown = ", ".join(f"{name} {versions[name]}" for name in ("jax", "flax", "optax", "orbax-checkpoint", "transformers")
                          if versions.get(name))  # fmt: skip
        return Finding("packages", "ok", f"all {len(needed)} within their bounds: {shown}", values={"versions": versions})
    told = "; ".join(f"expected {wanted}, got {got}" for wanted, got in wrong)
    install = "pip install " + " ".join(f"'{wanted}'" for wanted, _ in wrong)
    return Finding("packages", "fault", told, install, {"versions": versions, "wrong": dict(wrong)})


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _of_extras(declared: Declared) -> Finding:
    """No extra is needed by every run, so none that is absent is a fault."""
    lacks = lacks_of_extras(declared)
    ready = [name for name, lack in lacks.items() if not lack]
    lines = [f"ready: {', '.join(ready) or 'none'}"]
    lines += [f"{name} lacks {', '.join(lack)}: {install_extra(name)}" for name, lack in lacks.items() if lack]
    return Finding("extras", "ok", "\n".join(lines), values={"lacks": lacks})


def lacks_of_extras(declared: Declared) -> dict[str, list[str]]:
    """What each extra lacks."""
    from packaging.requirements import Requirement

    return {
        name: [wanted for line in lines for wanted, _ in lacking(Requirement(line))] for name, lines in declared.extras.items()
    }


def install_extra(name: str) -> str:
    """The command that brings an extra."""
    return f"pip install '{NAME}[{name}]'"
