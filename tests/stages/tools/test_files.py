import asyncio
import os

import pytest

from stages.tools import files
from stages.tools.files import FolderFiles, folder_tools


@pytest.fixture
def folder(tmp_path):
    top = tmp_path / "shown"
    (top / "src" / "deep").mkdir(parents=True)
    (top / "read.me").write_text("first\nsecond line\nthird\n")
    (top / "src" / "main.py").write_text("print('Second')\n")
    (top / "src" / "deep" / "x.py").write_text("second = 2\nx = second\n")
    (top / "bytes").write_bytes(b"second\0\xff")
    secret = tmp_path / "secret.txt"
    secret.write_text("second: hidden\n")
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "secret.txt").write_text("second: hidden\n")
    (top / "link").symlink_to(secret)
    (top / "src" / "away").symlink_to(tmp_path / "hidden")
    os.mkfifo(top / "pipe")
    return top


def test_files_are_listed_by_pattern_in_order(folder):
    seen = FolderFiles(folder)
    assert seen.list_files() == "bytes (8 bytes)\nread.me (24 bytes)\nsrc/deep/x.py (22 bytes)\nsrc/main.py (16 bytes)"
    assert seen.list_files("*.py") == "src/deep/x.py (22 bytes)\nsrc/main.py (16 bytes)"
    assert seen.list_files("*.c") == "no file"


def test_lines_are_read_with_their_numbers(folder):
    seen = FolderFiles(folder)
    assert seen.read_file("read.me") == "1\tfirst\n2\tsecond line\n3\tthird"
    assert seen.read_file("./src/main.py") == "1\tprint('Second')"
    assert seen.read_file("read.me", 2, 1) == "2\tsecond line"
    assert seen.read_file("read.me", 9) == "the file has fewer than 9 lines"
    with pytest.raises(ValueError, match="expected lines from 1"):
        seen.read_file("read.me", 0)


def test_a_text_is_found_in_all_plain_text_files(folder):
    seen = FolderFiles(folder)
    assert seen.search_files("second") == "read.me:2: second line\nsrc/deep/x.py:1: second = 2\nsrc/deep/x.py:2: x = second"
    assert seen.search_files("second", "*.py", ignore_case=True) == (
        "src/deep/x.py:1: second = 2\nsrc/deep/x.py:2: x = second\nsrc/main.py:1: print('Second')"
    )
    assert seen.search_files(".*") == "no match"
    with pytest.raises(ValueError, match="expected a text"):
        seen.search_files("")


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("../secret.txt", "expected a path inside the folder"),
        ("src/../../secret.txt", "expected a path inside the folder"),
        ("/etc/passwd", "expected a path inside the folder"),
        ("", "expected a path inside the folder"),
        ("link", "link: is a link"),
        ("src/away/secret.txt", "src/away/secret.txt: (is a link|not a directory)"),
        ("absent", "absent: no such file or directory"),
        ("src", "expected a file, got something else"),
        ("pipe", "expected a file, got something else"),
        ("read.me/x", "not a directory"),
        ("nul\0", "null"),
        ("x" * 5000, "file name too long"),
    ],
)
def test_no_path_leads_out_of_the_folder_or_to_what_is_no_file(folder, path, told):
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(ValueError, match=told):
        FolderFiles(folder).read_file(path)
    assert set(os.listdir("/proc/self/fd")) == before


def test_nothing_outside_is_listed_or_found(folder):
    seen = FolderFiles(folder)
    assert "secret" not in seen.list_files()
    assert "hidden" not in seen.search_files("hidden")


def test_what_is_looked_at_and_answered_is_bounded(folder, monkeypatch):
    for number in range(20):
        (folder / f"n{number:02}").write_text("needle\n" * 10)
    for name, most in {"MAX_LISTED": 3, "MAX_MATCHES": 15, "MAX_LINE_CHARS": 5, "MAX_FILE_BYTES": 21}.items():
        monkeypatch.setattr(files, name, most)
    seen = FolderFiles(folder)
    assert seen.list_files("n*").splitlines()[-1] == "and 17 more; narrow the pattern"
    assert seen.read_file("n00") == "1\tneedl\n2\tneedl\n3\tneedl"
    found = seen.search_files("need").splitlines()
    assert found[3] == "n01:1: needl"
    assert (len(found), found[-1]) == (16, "and more; narrow the search")
    monkeypatch.setattr(files, "MAX_ENTRIES", 4)
    assert len(seen.list_files().splitlines()) <= 4
    monkeypatch.setattr(files, "MAX_DEPTH", 1)
    assert "src/" not in seen.list_files("src*")


def test_they_are_tools_with_limits(folder):
    async def run():
        async with folder_tools(folder, max_output_chars=60).open((0, 0, 0, 0)) as tools:
            by_name = {tool.name: tool for tool in tools}
            listed = await by_name["list_files"].call({}, (0,))
            outside = await by_name["read_file"].call({"path": "../secret.txt"}, (0,))
            return sorted(by_name), listed, outside

    names, listed, outside = asyncio.run(run())
    assert names == ["list_files", "read_file", "search_files"]
    assert len(listed.text) == 60
    assert (outside.outcome, outside.text) == ("failed", "error: expected a path inside the folder, got ../secret.txt")
    with pytest.raises(NotADirectoryError, match="expected a folder"):
        folder_tools(folder / "absent")


def test_a_search_ends_soon_after_its_deadline(tmp_path, monkeypatch):
    looked = []
    heed = files._heed_cancellation

    def counted():
        looked.append(1)
        heed()

    monkeypatch.setattr(files, "_heed_cancellation", counted)
    for number in range(50):
        (tmp_path / f"{number}").write_text("x\n" * 20_000)

    async def run():
        async with folder_tools(tmp_path, deadline_s=0.02).open((0, 0, 0, 0)) as tools:
            answer = await tools[2].call({"text": "y"}, (0,))
        await asyncio.sleep(0.05)
        at = len(looked)
        await asyncio.sleep(0.05)
        return answer, at == len(looked)

    answer, ended = asyncio.run(run())
    assert answer.text == "error: no answer within 0.02 s"
    assert ended
    assert len(looked) < 50 * 20


def test_no_name_of_a_file_reads_as_a_further_line(tmp_path):
    for name in ("a\nb.txt (9 bytes)", "c\u2028d", os.fsdecode(b"e\xff")):
        (tmp_path / name).write_text("word")
    seen = FolderFiles(tmp_path)
    assert seen.list_files() == "a\\nb.txt (9 bytes) (4 bytes)\nc\\u2028d (4 bytes)\ne\\udcff (4 bytes)"
    assert seen.search_files("word") == "a\\nb.txt (9 bytes):1: word\nc\\u2028d:1: word\ne\\udcff:1: word"
