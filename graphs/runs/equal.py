"""Whether two runs are equal: all that they logged, trained and learned, but for what tells of time. Reads their folders.

This is what "equal" means where it is said that a run which was killed and gone on with equals one that never was:

* ``metrics.jsonl``: the same rows of each stage in the same order, one for each step, every field but the times. Rows that tell
  of a commit which could not be made, of health or of an alert are no part of it.
* ``episodes.jsonl``: the same episodes, as often, with every word.
* ``summary.json``: the same status, scores and counts.
* commits: the last ones, and all that both have of one step, hold the same parameters, optimizer state and whatever else is in
  arrays, to the bit.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import jax
import msgspec
import numpy as np
import orbax.checkpoint as ocp

from flow.saving import Commit, complete
from graphs.runs.folder import METRICS, TRANSCRIPTS
from graphs.runs.progress import read_progress
from stages.train.metrics import of_the_machine

TIMES = re.compile(r"seconds|.*_ms|.*(wait|work)_share|high_water|peak_rss_mb|attempts?")
"""Beside the figures of the clock and of the machine that a row of metrics has: others of time, how full things were, and how
often something had to be begun."""
BESIDE = {"commits", "health", "alerts", "loggers"}
"""What rows of one start of a run say in place of a stage."""
IN_FORCE = "cell "
"""What the arrays are called that were in force in the middle of an evaluation, as in some commits and not in others."""
MOST = 20
"""Differences that are listed of each file."""


_Place: TypeAlias = str
"""Where in its program a commit was made."""


def unequal(one: Path, other: Path) -> list[str]:
    """What differs between two runs, a line each; nothing where they are equal.

    Args:
        one: folder of a run.
        other: folder of another.

    Raises:
        OSError: a file that every run has is missing.
    """
    return [
        *_of_rows(_rows(one), _rows(other)),
        *_of_episodes(_episodes(one), _episodes(other)),
        *_of_values("summary.json", _timeless(_read(one / "summary.json")), _timeless(_read(other / "summary.json"))),
        *_of_commits(_commits(one), _commits(other)),
    ]


def unequal_ends(one: Path, other: Path) -> list[str]:
    """What differs between the arrays of two runs at their ends, a line each; see ``unequal``."""
    ends = [list(_commits(run).items())[-1:] for run in (one, other)]
    if not all(ends):
        return ["checkpoints: one of them has no commit"]
    ((_, mine),), ((_, others),) = ends
    return list(_of_arrays(_arrays(mine), _arrays(others)))


def num_arrays(run: Path) -> int:
    """Arrays in the last commit of a run."""
    commits = _commits(run)
    return len(_arrays(list(commits.values())[-1])) if commits else 0


def doubled(run: Path) -> list[str]:
    """Rows of steps and of evaluations that a run has twice, a line each."""
    counts = Counter(
        (stage, name, row[name])
        for stage, rows in _rows(run).items()
        for row in rows
        for name in ("step", "version")
        if name in row
    )
    return [f"{stage}: {name} {value} has {count} rows" for (stage, name, value), count in counts.items() if count > 1]


def _rows(run: Path) -> dict[str, list[Any]]:
    rows: dict[str, list[Any]] = {}
    for line in (run / METRICS).read_bytes().splitlines():
        row = msgspec.json.decode(line)
        if row.get("stage") in BESIDE:
            continue
        rows.setdefault(f"{row.get('phase')}/{row.get('stage')}", []).append(_timeless(row))
    return rows


def _episodes(run: Path) -> Counter[bytes]:
    lines = (run / TRANSCRIPTS).read_bytes().splitlines()
    return Counter(msgspec.json.encode(_timeless(msgspec.json.decode(line)), order="sorted") for line in lines)


def _read(path: Path) -> Any:
    return msgspec.json.decode(path.read_bytes())


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _timeless(inner) for name, inner in value.items() if not _of_time(name)}
    return [_timeless(inner) for inner in value] if isinstance(value, list) else value


def _of_time(name: str) -> bool:
    return of_the_machine(name) or TIMES.fullmatch(name) is not None


def _of_rows(one: Mapping[str, Sequence[Any]], other: Mapping[str, Sequence[Any]]) -> Iterable[str]:
    found: list[str] = []
    for stage in sorted({*one, *other}):
        mine, others = one.get(stage, ()), other.get(stage, ())
        if len(mine) != len(others):
            found.append(f"metrics.jsonl: {stage}: {len(mine)} rows, and {len(others)}")
        for mine_row, other_row in zip(mine, others, strict=False):
            step = mine_row.get("step", mine_row.get("version"))
            found += _of_values(f"metrics.jsonl: {stage} {step}", mine_row, other_row)
    return found[:MOST]


def _of_episodes(one: Counter[bytes], other: Counter[bytes]) -> Iterable[str]:
    gone, new = one - other, other - one
    told = [f"episodes.jsonl: {count} times only in the one: {line[:200]!r}" for line, count in gone.items()]
    return (told + [f"episodes.jsonl: {count} times only in the other: {line[:200]!r}" for line, count in new.items()])[:MOST]


def _of_values(where: str, one: Any, other: Any) -> list[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        names = [*one, *(name for name in other if name not in one)]
        return [line for name in names for line in _of_values(f"{where}.{name}", one.get(name), other.get(name))][:MOST]
    # As text: what is not a number equals itself here.
    return [] if repr(one) == repr(other) else [f"{where}: {one!r:.200}, and {other!r:.200}"]


def _of_commits(one: Mapping[_Place, Commit], other: Mapping[_Place, Commit]) -> Iterable[str]:
    last, others_last = next(reversed(one), None), next(reversed(other), None)
    if last != others_last:
        yield f"checkpoints: the last commit is {last}, and {others_last}"
    for place in one:
        if place in other:
            yield from (f"{place}: {line}" for line in _of_arrays(_arrays(one[place]), _arrays(other[place])))


def _of_arrays(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> Iterable[str]:
    for name in sorted({*one, *other}):
        mine, others = one.get(name), other.get(name)
        if mine is None or others is None:
            yield f"{name}: only in the {'one' if others is None else 'other'}"
        elif (mine.shape, mine.dtype, mine.tobytes()) != (others.shape, others.dtype, others.tobytes()):
            apart = int(np.count_nonzero(mine != others)) if mine.shape == others.shape else mine.size
            yield f"{name}: {apart} of {mine.size} numbers differ"


def _commits(run: Path) -> dict[_Place, Commit]:
    """The latest commit of each place in a program, in their order."""
    found: dict[_Place, Commit] = {}
    for commit in complete(run / "checkpoints"):
        said = read_progress(commit)
        if said.completed:
            place = "the end"
        else:
            name = said.phases[said.phase]
            place = f"before {name}" if commit.manifest.graph is None else f"{name}, step {said.step}"
        found.pop(place, None)
        found[place] = commit
    return found


def _arrays(commit: Commit) -> dict[str, np.ndarray]:
    """All arrays of a commit that belong to its step."""
    marks = sorted(commit.folder.absolute().rglob("_METADATA"))
    folders = {str(mark.parent.relative_to(commit.folder.absolute())): mark.parent for mark in marks}
    return {
        f"{name}/{leaf}": array
        for name, folder in folders.items()
        if not name.startswith(IN_FORCE)
        for leaf, array in _restored(folder)
    }


def _restored(folder: Path) -> Iterable[tuple[str, np.ndarray]]:
    """Arrays that Orbax wrote, as they are on the disk, without the devices they came from."""
    with ocp.PyTreeCheckpointer() as reader:
        like = reader.metadata(folder).item_metadata.tree
        asked = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), like)
        arrays = reader.restore(folder, restore_args=asked)
    return [(jax.tree_util.keystr(path, simple=True, separator="."), leaf) for path, leaf in jax.tree.leaves_with_path(arrays)]
