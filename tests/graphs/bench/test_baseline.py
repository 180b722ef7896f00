"""The correctness baseline: equal to its record, and a record that is not equal is told by field."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from graphs.bench.baseline.experiment import BASELINE
from graphs.bench.baseline.record import COMMAND, RunRecord, differences, read_record, write_record
from graphs.bench.baseline.script import said


@pytest.fixture(scope="module")
def stored() -> RunRecord:
    return read_record()["scripted"]


def changed(record: RunRecord, change: Callable[[dict], None]) -> RunRecord:
    """A copy, changed as plain values."""
    plain = msgspec.to_builtins(record)
    change(plain)
    return msgspec.convert(plain, RunRecord)


def told(stored: RunRecord, now: RunRecord) -> dict[str, tuple[int, float | None]]:
    found = differences(stored, now)
    return {each.field: (each.different, each.largest) for each in found if each.different}


@pytest.mark.slow
def test_a_training_is_as_its_record_has_it_one_at_a_time_and_sixteen_at_once():
    """The record was made on another day; the second schedule is compared with the first, to the bit."""
    found = BASELINE.run(BASELINE.short, lambda done, total, what: None)
    assert [claim for claim in found.claims if claim.holds is not True] == []
    one, many = (row for row in found.tables[1].rows if row["kind"] == "sampled")
    assert one["overtaken"] == 0
    assert many["overtaken"] > 0


def test_the_record_has_every_way_an_episode_goes_and_two_versions(stored: RunRecord):
    assert {each.status for each in stored.episodes} == {"finished", "truncated_length", "truncated_turns"}
    assert {each.reward for each in stored.episodes} == {0.0, 1.0}
    assert {version for each in stored.episodes for version in each.versions} == {0, 1}
    assert any(["tool", "error: division by zero"] in each.said for each in stored.episodes)
    assert all(len(each.ids) == len(each.mask) for each in stored.episodes)
    assert all(len(each.logprobs) == len(each.advantages) == each.mask.count("1") for each in stored.episodes)


def test_a_record_equals_itself_however_often_it_is_written(tmp_path: Path):
    write_record(read_record(), tmp_path / "again.json")
    again = read_record(tmp_path / "again.json")
    assert again == read_record()
    assert told(again["scripted"], read_record()["scripted"]) == {}


def test_a_token_a_version_or_a_member_that_differs_is_told_by_its_field(stored: RunRecord):
    def change(plain: dict) -> None:
        plain["episodes"][3]["ids"][-1] += 1
        plain["episodes"][4]["versions"][0] += 1
        plain["episodes"][5]["member"] += 1
        plain["steps"][1]["targets"].reverse()

    assert told(stored, changed(stored, change)) == {
        "ids": (1, None), "versions": (1, None), "member": (1, None), "targets": (1, None),
    }  # fmt: skip


def test_a_number_that_is_off_is_told_with_how_far_and_one_that_is_missing_cannot_be_compared(stored: RunRecord):
    def off(plain: dict) -> None:
        plain["episodes"][0]["logprobs"][2] += 0.25
        plain["steps"][0]["figures"]["entropy"] *= 1.5

    entropy = stored.steps[0].figures["entropy"]
    assert entropy > 1
    assert told(stored, changed(stored, off)) == {
        "logprobs": (1, pytest.approx(0.25 / max(1, abs(stored.episodes[0].logprobs[2])))),
        "figures": (1, pytest.approx(0.5)),
    }
    short = changed(stored, lambda plain: plain["episodes"][0]["logprobs"].pop())
    assert told(stored, short) == {"logprobs": (1, None)}


def test_an_episode_that_is_missing_differs_in_every_field(stored: RunRecord):
    found = told(stored, changed(stored, lambda plain: plain["episodes"].pop()))
    assert len(found) == len(stored.episodes[0].__struct_fields__)
    assert found["advantages"] == (1, None)


def test_no_record_says_what_writes_one(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match=rf"got no {tmp_path}/none.json; write it with {COMMAND}"):
        read_record(tmp_path / "none.json")
    (tmp_path / "other.json").write_text('{"scripted": {"episodes": 3}}')
    with pytest.raises(ValueError, match="Expected `array`, got `int`"):
        read_record(tmp_path / "other.json")


def test_the_script_answers_with_what_the_tool_gave():
    asked = "<|bos|><|user|>313*97<|assistant|>"
    assert said(asked, (0, 0, 0, 0, 0)).calls[0].arguments == {"expression": "313*97"}
    assert said(asked + "<|calculator|>313*97<|end|><|tool|>30361<|assistant|>", (0, 0, 0, 0, 1)) == "30361"
    assert said(asked, (0, 0, 1, 0, 0)) == "30000"
