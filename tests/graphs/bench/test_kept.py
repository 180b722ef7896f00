"""What was found is read back as it was, and a file that is something else is refused."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from graphs.bench.experiment import Claim, Column, Findings, Table
from graphs.bench.kept import Kept, as_line, file_of, read_folder, read_kept, write_kept
from graphs.report.plots import Plot
from graphs.report.series import Series

NUMBERS = [math.nan, math.inf, -math.inf, 0.1, -0.0, 1e-320, 2**60 + 1, 1, 1.0, True, None, "nan", "inf", ""]


def with_findings(kept: Kept, **changes: Any) -> Kept:
    return msgspec.structs.replace(kept, findings=replace(kept.findings, **changes))


def bits(value: Any) -> str:
    """Every value with its type: nan is nan, 1 is not 1.0, and -0.0 is not 0.0. Sequences are lists, as in a file."""
    return repr(msgspec.to_builtins(value)).replace("(", "[").replace(")", "]")


def test_what_a_real_experiment_found_is_read_back_as_it_was(words: Kept, tmp_path: Path) -> None:
    file = write_kept(tmp_path / "new" / "folder", words)
    assert file == tmp_path / "new" / "folder" / "words.json"
    assert bits(read_kept(file)) == bits(words)
    assert list(file.parent.iterdir()) == [file], "nothing else is left"


def test_every_kind_of_number_and_text_is_read_back_in_every_place(words: Kept, tmp_path: Path) -> None:
    rows = [{f"c{at}": value for at, value in enumerate(NUMBERS)}]
    columns = [Column(f"c{at}", "head", "s", 5) for at in range(len(NUMBERS))]
    values = [math.nan, math.inf, None, 0.5]
    kept = with_findings(
        words,
        claims=[Claim("one", value, value, "equal") for value in NUMBERS],
        tables=[Table("all", columns, rows, "note")],
        plots=[
            Plot("p", "m", [1.0, 2.0, 3.0, math.inf], [Series("s", values, values, values, color=3)], kind="stack", note="n")
        ],
        detail={"nested": [{"deep": NUMBERS}], "$other": "$number"},
    )
    assert bits(read_kept(write_kept(tmp_path, kept))) == bits(kept)


def test_numbers_of_numpy_are_plain_ones(words: Kept, tmp_path: Path) -> None:
    claim = Claim("mean", np.float64(0.25), np.float32(0.5), "most")  # pyright: ignore[reportArgumentType]
    detail = {"array": np.arange(3), "nan": np.float64("nan"), "path": Path("a/b")}
    found = read_kept(write_kept(tmp_path, with_findings(words, claims=[claim], detail=detail))).findings
    assert found.claims[0] == Claim("mean", 0.25, 0.5, "most")
    assert bits(found.detail) == bits({"array": [0, 1, 2], "nan": math.nan, "path": "a/b"})


def test_a_file_is_json_that_every_reader_takes(words: Kept, tmp_path: Path) -> None:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    for text in (write_kept(tmp_path, words).read_text(), as_line(words).decode()):
        assert json.loads(text, parse_constant=refuse)["findings"]["detail"]["not finite"][0] == {"$number": "nan"}
    assert "\n" not in as_line(words).decode()


def test_what_cannot_be_told_apart_or_written_is_refused_before_a_file_is_touched(words: Kept, tmp_path: Path) -> None:
    before = write_kept(tmp_path, words).read_bytes()
    with pytest.raises(TypeError, match=r"expected no key '\$number'"):
        write_kept(tmp_path, with_findings(words, detail={"$number": "nan"}))
    with pytest.raises(TypeError, match="expected something JSON can hold, got object"):
        write_kept(tmp_path, with_findings(words, detail={"it": object()}))
    assert file_of(tmp_path, "words").read_bytes() == before


def test_a_write_that_fails_leaves_what_was_there(words: Kept, tmp_path: Path, full_disk: Any) -> None:
    file = write_kept(tmp_path, words)
    before = file.read_bytes()
    full_disk(100)
    with pytest.raises(OSError, match="File too large"):
        write_kept(tmp_path, words)
    full_disk(None)
    assert file.read_bytes() == before
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "{}", '{"name": "words"}', '{"a": [1, NaN]}', "\udcff"],
    ids=["empty", "torn", "list", "object", "too little", "no JSON", "no text"],
)
def test_a_file_of_another_shape_is_refused_by_name(content: str, tmp_path: Path) -> None:
    file = tmp_path / "words.json"
    file.write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(ValueError, match=r"expected findings as headrace bench keeps them, got .*words\.json; take it out"):
        read_kept(file)


def test_a_field_more_or_of_another_type_is_another_shape(words: Kept, tmp_path: Path) -> None:
    whole = json.loads(as_line(words))
    for change in (
        {"host": "x"},
        {"seconds": "long"},
        {"findings": {"answer": 3}},
        {"machine": {**whole["machine"], "host": "x"}},
    ):
        file = tmp_path / "words.json"
        file.write_text(json.dumps({**whole, **change}))
        with pytest.raises(ValueError, match="expected findings as headrace bench keeps them"):
            read_kept(file)


def test_findings_under_another_name_are_refused(words: Kept, tmp_path: Path) -> None:
    file = write_kept(tmp_path, words).rename(tmp_path / "other.json")
    with pytest.raises(ValueError, match=r"expected findings of 'other', got those of 'words'.*name it words\.json"):
        read_kept(file)


def test_a_folder_is_read_in_the_order_asked_for_then_by_name(words: Kept, tmp_path: Path) -> None:
    for name in ("b", "a", "d", "c"):
        write_kept(tmp_path, msgspec.structs.replace(words, name=name))
    (tmp_path / "deeper").mkdir()
    (tmp_path / "deeper" / "e.json").write_text("of somebody else")
    assert [kept.name for kept in read_folder(tmp_path, ["none", "d", "b"])] == ["d", "b", "a", "c"]


def test_a_folder_without_findings_is_told(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match=r"expected findings, NAME\.json, got none"):
        read_folder(tmp_path)
    with pytest.raises(LookupError, match="expected a folder of findings, got none at"):
        read_folder(tmp_path / "none")


def test_findings_tell_what_they_were_made_with_and_not_where(words: Kept) -> None:
    assert words.settings == {"words": 40, "wanted": None}
    assert {"python", "headrace", "jax"} <= words.versions.keys()
    assert words.machine.cores > 0
    assert words.machine.memory_bytes > 2**20
    assert (words.machine.backend, words.machine.num_devices) == ("cpu", 2)
    assert words.holds is True
    assert words.date.endswith("+00:00")
    assert words.seconds > 0
    assert {"node", "host", "user"} & set(msgspec.to_builtins(words.machine)) == set()
    assert isinstance(words.findings, Findings)
