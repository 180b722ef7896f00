"""The page holds all of itself, stays small, and what models and tools said is text in it."""

import base64
import hashlib
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from graphs.report.page import body, list_of_runs, page, write_report
from graphs.report.record import read_record
from graphs.report.verdict import Told

Left = Callable[..., Path]
MakeRow = Callable[..., dict[str, Any]]
HOSTILE = "</script></span><script>alert(1)</script><img src=x onerror=alert(1)>\" ' & \u2028"


class Parsed(HTMLParser):
    """Tags of a page with their attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def sample(step: int, text: str, count: int = 3) -> dict[str, Any]:
    return {
        "attempt": 0, "phase": "rl", "step": step, "task": text, "birth": 1, "member": 0, "retry": 0, "status": "finished",
        "error": None, "reward": "nan", "parts": {text: 0.5}, "text": [text] * (count + 2), "kind": "ot" + "s" * count,
        "behaviour": [None, None, *[-0.5] * count], "trainer": [None, None, *[-0.8] * count],
        "advantage": [None, None, *[1.25] * count], "version": [None, None, *[7] * count],
    }  # fmt: skip


@pytest.fixture
def hostile(left: Left, row: MakeRow) -> Path:
    """A run of which everything that can be text is hostile."""
    said = [
        {"role": "user", "content": HOSTILE},
        {"role": "assistant", "content": HOSTILE, "calls": [{"name": HOSTILE, "arguments": {}}]},
    ]
    failed = {"status": "tool_error", "task": HOSTILE, "error": HOSTILE, "messages": said}
    stages = {HOSTILE: {"taken": 1, "emitted": 1, "dropped": {HOSTILE: 1}, "work_share": 1.0}}
    alert = {"stage": "alerts", "alert": HOSTILE, "state": HOSTILE, "value": HOSTILE, "time": HOSTILE, "of_stage": HOSTILE}
    folder = left(
        [row(1, warning=HOSTILE), row(2), alert],
        samples=[sample(1, HOSTILE)],
        episodes=[failed, {"status": "finished", "messages": said}],
        config={HOSTILE: HOSTILE},
        attempts=[{"attempt": 0, "time": HOSTILE, "changes": [HOSTILE]}],
        summary={
            "status": HOSTILE,
            "error": HOSTILE,
            "stages": stages,
            "versions": {HOSTILE: HOSTILE},
            "attempts": 1,
        },
    )
    (folder / "errors").mkdir()
    (folder / "errors" / "a-b.txt").write_text(HOSTILE)
    return folder


def test_what_models_tools_and_settings_say_is_text(hostile: Path) -> None:
    parsed = Parsed(write_report(hostile).read_text())
    tags = [tag for tag, _ in parsed.tags]
    assert tags.count("script") == 1
    assert "img" not in tags
    assert not [name for _, attributes in parsed.tags for name in attributes if name.startswith("on")]
    assert parsed.text.count(HOSTILE) >= 15


def test_a_page_takes_nothing_from_anywhere(hostile: Path) -> None:
    text = write_report(hostile).read_text()
    taking = {"src", "href", "srcset", "action", "poster", "data", "xlink:href", "background", "formaction", "ping", "cite"}
    parsed = Parsed(text)
    assert [found for _, attributes in parsed.tags for found in attributes.items() if found[0] in taking] == []
    assert [tag for tag, _ in parsed.tags if tag in ("link", "iframe", "object", "embed", "base", "form")] == []
    own = text.replace(HOSTILE, "")
    assert re.findall(r"https?:|url\(|@import|//[a-z]+\.", own) == []
    assert "connect-src" not in text
    assert "data-refresh" not in text


def test_nothing_but_the_one_script_may_run(hostile: Path) -> None:
    text = write_report(hostile).read_text()
    script = text[text.rindex("<script>") + len("<script>") : text.rindex("</script>")]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = next(attributes["content"] for _, attributes in Parsed(text).tags if "http-equiv" in attributes) or ""
    assert f"script-src 'sha256-{digest}';" in policy
    assert policy.startswith("default-src 'none';")


def test_sampled_tokens_carry_their_numbers_and_those_that_differ_are_marked(left: Left, row: MakeRow) -> None:
    tags = Parsed(body(read_record(left([row(1)], samples=[sample(1, "a", 2)])))).tags
    tokens = [attributes for tag, attributes in tags if tag == "span" and "data-token" in attributes]
    assert [one["data-token"] for one in tokens] == ["-0.5,-0.8,1.25,7"] * 2
    assert all("far" in (one["class"] or "") for one in tokens)


def test_a_long_run_with_long_episodes_stays_small(left: Left, row: MakeRow) -> None:
    rows = [row(step, loss=(step * 7919 % 1000) / 997, attempt=step // 4000) for step in range(1, 10_001)]
    folder = left(rows, samples=[sample(step, "token ", 5000) for step in range(1, 40)])
    path = write_report(folder)
    assert path.stat().st_size < 3_000_000
    assert "more tokens are not shown" in path.read_text()


def test_a_page_says_what_bounded_the_run_where_that_is_known(left: Left, row: MakeRow) -> None:
    record = read_record(left([row(1)]))
    assert "Bounded by <b>" in Parsed(body(record, Told("Bounded by <b>"))).text
    assert "What bounded it" not in body(record, None)


def test_a_trace_that_is_not_read_yet_is_named(left: Left, row: MakeRow) -> None:
    folder = left([row(1)])
    (folder / "run.pftrace").write_bytes(b"x" * 2_000_000)
    assert "The trace, of 2 MB, is not read yet" in write_report(folder, most_bytes=0).read_text()
    assert "What bounded it" not in write_report(folder).read_text(), "it is damaged"


def test_a_run_without_samples_shows_transcripts(left: Left) -> None:
    said = [
        {"role": "user", "content": "2*3"},
        {"role": "assistant", "content": "", "calls": [{"name": "sum", "arguments": {"of": "2"}}]},
    ]
    folder = left(episodes=[{"status": "finished", "reward": 1.0, "messages": said, "task": "t"}])
    text = Parsed(body(read_record(folder))).text
    assert "sum(of=2)" in text
    assert "As text alone" in text


def test_a_run_that_has_only_begun_has_a_page(left: Left, tmp_path: Path) -> None:
    assert "not ended" in body(read_record(left()))
    assert "not begun" in body(read_record(tmp_path / "none"))


def test_a_served_page_asks_its_server_alone(left: Left) -> None:
    text = page("run", body(read_record(left())), refresh_s=2.0)
    assert 'data-refresh="2.0"' in text
    assert any("connect-src 'self'" in (attributes.get("content") or "") for _, attributes in Parsed(text).tags)


def test_runs_are_listed_with_links_the_newest_first(left: Left) -> None:
    old = left(name="old", summary={"status": "completed", "steps": 3, "heldout_before": 0.25, "heldout_after": 0.5})
    new = left(name="new & <b>", attempts=[{"attempt": 0, "time": "2026-02-01T00:00:00"}])
    parsed = Parsed(list_of_runs(old.parent, [old, new]))
    assert [attributes["href"] for tag, attributes in parsed.tags if tag == "a"] == ["new%20%26%20%3Cb%3E/", "old/"]
    assert "25%" in parsed.text


@pytest.mark.slow
def test_a_run_that_ended_has_its_report(penalised: Path) -> None:
    parsed = Parsed((penalised / "report.html").read_text())
    titles = [attributes["aria-label"] or "" for tag, attributes in parsed.tags if tag == "svg"]
    assert "Bounded by" in parsed.text
    assert "critical path" in parsed.text
    for title in ("Held-out success", "Reward", "Loss", "Entropy", "Goodput", "Lag", "Episode length", "Time of a step"):
        assert any(one.startswith(f"{title}:") for one in titles), title
    ids = {attributes.get("id") for _, attributes in parsed.tags}
    assert {"utilisation", "ends", "ledger", "episodes", "configuration", "environment", "starts"} <= ids
    assert any("data-token" in attributes for _, attributes in parsed.tags)
    assert len((penalised / "report.html").read_text()) < 1_000_000
