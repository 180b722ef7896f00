"""From a name to a place: folders, files, and repositories of the Hub, here out of a cache laid out on disk as the Hub's is."""

import shutil
from pathlib import Path

import pytest

from graphs.model_source import ModelSource, find_model
from graphs.pretrained import EvaluateProgramConfig, evaluate_program
from graphs.pretrained_parts import PolicyConfig
from graphs.runs.versions import versions

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(pretrained_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache that holds one repository, whose main branch stands for ``COMMIT``."""
    repository = tmp_path / "models--acme--tiny"
    shutil.copytree(pretrained_folder, repository / "snapshots" / COMMIT)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    return tmp_path


def test_a_folder_and_a_file_are_found_on_disk(pretrained_folder: Path, tmp_path: Path) -> None:
    assert find_model(str(pretrained_folder), None, "x") == ModelSource(str(pretrained_folder), pretrained_folder)
    (tmp_path / "m.gguf").write_bytes(b"")
    assert find_model(str(tmp_path / "m.gguf"), None, "x").path == tmp_path / "m.gguf"


def test_a_repository_is_found_in_the_cache_and_its_branch_becomes_a_commit(cache: Path) -> None:
    expected = ModelSource("acme/tiny", cache / "models--acme--tiny" / "snapshots" / COMMIT, COMMIT)
    assert find_model("acme/tiny", None, "x") == expected
    assert find_model("acme/tiny", "main", "x") == expected
    assert find_model("acme/tiny", COMMIT, "x") == expected


@pytest.mark.parametrize(
    ("name", "revision", "said"),
    [
        (None, None, r"expected a pretrained model, got none, in policy.model; pass --policy.model FOLDER"),
        ("nowhere.gguf", None, r"expected a folder.*, got 'nowhere.gguf', which is none, in policy.model; check the path"),
        ("a/b/c", None, r"got 'a/b/c', which is none"),
        ("acme/other", None, r"expected the model acme/other at revision 'main', got no folder.*, in policy.model; fetch it"),
        ("acme/tiny", "v9", r"expected the model acme/tiny at revision 'v9', got no folder"),
        ("acme/ti--ny", None, r"expected the model acme/ti--ny at revision 'main', got"),
    ],
)
def test_what_cannot_be_found_is_told_in_four_parts(cache: Path, name: str | None, revision: str | None, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        find_model(name, revision, "policy.model")


def test_a_folder_that_holds_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"expected a Hugging Face folder, got .*, which has no config.json, in x; name"):
        find_model(str(tmp_path), None, "x")


def test_a_revision_of_something_on_disk_is_refused(pretrained_folder: Path) -> None:
    with pytest.raises(ValueError, match=r"expected a revision only with a model of the Hugging Face Hub, got 'v1'"):
        find_model(str(pretrained_folder), "v1", "x")


@pytest.mark.slow
def test_a_run_records_the_commit_and_pins_it(cache: Path) -> None:
    program = evaluate_program(EvaluateProgramConfig(policy=PolicyConfig(model="acme/tiny")))
    assert program.config is not None
    assert program.config.policy.revision == COMMIT
    assert program.parts is not None
    program.parts.load()
    assert versions(program)["model_source"] == {"name": "acme/tiny", "commit": COMMIT}
