"""The public face of flow grows on purpose, and no room is named after nothing."""

import re
from pathlib import Path

import flow

ROOT = Path(__file__).parents[2]
FACE = Path(__file__).with_name("flow_face.txt")
MOST_NAMES = 33
"""Thirty to declare and run a graph, and the three verbs with which any code under it shows what it does."""
EMPTY_NAMES = {"util", "utils", "helper", "helpers", "common", "misc", "manager", "controller", "orchestrator"}


def test_the_face_of_flow_is_the_pinned_one():
    pinned = FACE.read_text().split()
    assert sorted(flow.__all__) == pinned, f"a name came or went; if that is on purpose, change {FACE.name} too"


def test_the_face_of_flow_has_at_most_33_names():
    assert len(flow.__all__) <= MOST_NAMES


def test_every_name_of_the_face_exists():
    assert [name for name in flow.__all__ if not hasattr(flow, name)] == []


def test_no_module_is_named_after_nothing():
    folders = ("flow", "stages", "graphs", "tests", "examples")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_dir() or path.suffix == ".py"]
    assert [str(path.relative_to(ROOT)) for path in paths if words(path.stem) & EMPTY_NAMES] == []


def test_words_of_a_module_name_are_told_apart():
    assert words("run_manager") == {"run", "manager"}
    assert words("_commonwealth") == {"commonwealth"}


def words(stem: str) -> set[str]:
    return {word for word in re.split(r"[_\W]+", stem.lower()) if word}
