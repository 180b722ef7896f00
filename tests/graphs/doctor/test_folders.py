"""The folder of runs and that of compiled programs are tried as runs use them, and left as they were."""

import threading
from pathlib import Path

from graphs.doctor.finding import Finding
from graphs.doctor.folders import find_compiled, find_runs, within


def test_a_folder_that_never_answers_is_a_fault_within_the_deadline() -> None:
    dead = threading.Event()

    def look() -> Finding:
        dead.wait()
        return Finding("runs folder", "ok", "")

    found = within("runs folder", look, 0.05)
    dead.set()
    assert (found.what, found.level) == ("runs folder", "fault")
    assert "none within 0.05 s" in found.found


def test_a_folder_that_is_yet_to_be_made_is_tried_where_it_would_be(tmp_path: Path) -> None:
    found = find_runs(tmp_path / "mine" / "runs")
    assert found.level in ("ok", "warning")  # a disk may be nearly full
    assert "to be made" in found.found
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_a_fault_with_the_setting(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    found = find_runs(tmp_path / "runs")
    assert (found.level, found.remedy) == ("fault", "name another: --options.folder FOLDER")
    assert "Not a directory" in found.found


def test_the_cache_of_compiled_programs_is_the_one_that_runs_use(tmp_path: Path) -> None:
    folder = tmp_path / "headrace" / "compiled"
    folder.mkdir(parents=True)
    (folder / "a").write_bytes(bytes(1000))
    found = find_compiled({"XDG_CACHE_HOME": str(tmp_path)})
    assert (found.level, found.values) == ("ok", {"folder": str(folder), "files": 1, "bytes": 1000})
    assert find_compiled({"JAX_COMPILATION_CACHE_DIR": str(folder)}).values["files"] == 1
    assert "gs://bucket/it, which was not looked at" in find_compiled({"JAX_COMPILATION_CACHE_DIR": "gs://bucket/it"}).found
    off = find_compiled({"JAX_ENABLE_COMPILATION_CACHE": "false"})
    assert (off.level, off.remedy) == ("warning", "unset JAX_ENABLE_COMPILATION_CACHE")
