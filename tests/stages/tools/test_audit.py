import json
import os
import threading

import pytest

from stages.tools.audit import AuditLog, used_credentials


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_row_is_in_the_file_when_the_log_is_left_in_the_order_of_the_calls(tmp_path):
    with AuditLog(tmp_path / "audit.jsonl") as log:
        for number in range(500):
            log.write({"call": number, "credentials": ["search"] if number == 7 else []}, phase="rl")
    found = rows(tmp_path / "audit.jsonl")
    assert [row["call"] for row in found] == list(range(500))
    assert {row["phase"] for row in found} == {"rl"}
    assert list(found[0]) == ["time", "phase", "call", "credentials"]
    assert used_credentials(tmp_path / "audit.jsonl") == {"search"}
    assert not [thread for thread in threading.enumerate() if thread.name == "audit log"]


def test_a_run_without_calls_has_no_log(tmp_path):
    with AuditLog(tmp_path / "audit.jsonl"):
        pass
    assert list(tmp_path.iterdir()) == []
    assert used_credentials(tmp_path / "audit.jsonl") == set()


def test_rows_are_added_to_a_log_that_is_there(tmp_path):
    for call in range(2):
        with AuditLog(tmp_path / "audit.jsonl") as log:
            log.write({"call": call})
    assert [row["call"] for row in rows(tmp_path / "audit.jsonl")] == [0, 1]


def test_a_row_that_a_kill_has_cut_is_left_out(tmp_path):
    (tmp_path / "audit.jsonl").write_text('{"credentials": ["mail"]}\n{"credentials": ["sea')
    assert used_credentials(tmp_path / "audit.jsonl") == {"mail"}


@pytest.mark.parametrize("whole", [0, 1, 3000])
@pytest.mark.parametrize("half", ['{"credentials": ["sea', '{"credentials": ["' + "s" * 100_000])
def test_half_a_row_is_cut_off_before_another_one_is_written(tmp_path, whole, half):
    log = tmp_path / "audit.jsonl"
    log.write_text('{"credentials": ["mail"], "number": 1}\n' * whole + half)
    with AuditLog(log) as resumed:
        resumed.write({"credentials": ["search"]})
    assert len(rows(log)) == whole + 1
    assert used_credentials(log) == ({"mail", "search"} if whole else {"search"})


def test_a_line_that_nobody_can_read_hides_no_other(tmp_path):
    """As a log that was resumed after a kill may have one of."""
    (tmp_path / "audit.jsonl").write_text('{"credentials": ["a"]}\n{"cred{"credentials": ["b"]}\n\n{"credentials": ["c"]}\n')
    assert used_credentials(tmp_path / "audit.jsonl") == {"a", "c"}


def test_a_call_is_not_held_up_by_a_slow_disk(tmp_path):
    """A pipe that nobody reads yet: rows are taken at once, and all arrive once somebody does."""
    os.mkfifo(tmp_path / "audit.jsonl")
    got = []
    with AuditLog(tmp_path / "audit.jsonl") as log:
        for number in range(1000):
            log.write({"call": number})
        reader = threading.Thread(target=lambda: got.extend(rows(tmp_path / "audit.jsonl")))
        reader.start()
    reader.join()
    assert len(got) == 1000


def test_a_log_that_cannot_be_written_stops_the_calls(tmp_path):
    with pytest.raises(FileNotFoundError), AuditLog(tmp_path / "absent" / "audit.jsonl") as log:
        log.write({"call": 0})
    with pytest.raises(OSError, match="the audit log cannot be written"):
        log.write({"call": 1})
