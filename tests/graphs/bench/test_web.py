"""The HTML page holds all of itself, and what findings say is text in it."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec

from graphs.bench.experiment import Claim, Column, Table
from graphs.bench.kept import Kept
from graphs.bench.web import body, said, write_web

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\" ' & `<b>`"


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


def hostile(words: Kept) -> Kept:
    found = words.findings
    table: Any = Table(HOSTILE, [Column("a", HOSTILE)], [{"a": HOSTILE}], HOSTILE)
    return msgspec.structs.replace(
        words, title=HOSTILE, question=HOSTILE, command=HOSTILE, versions={"jax": HOSTILE},
        findings=replace(found, answer=HOSTILE, claims=[Claim(HOSTILE, HOSTILE, 1)], tables=[table], notes=[HOSTILE],
                         plots=[replace(found.plots[0], title=HOSTILE)]),
    )  # fmt: skip


def test_what_findings_say_is_text_and_nothing_comes_from_elsewhere(words: Kept, tmp_path: Path) -> None:
    text = write_web([hostile(words)], tmp_path / "new" / "bench.html").read_text()
    parsed = Parsed(text)
    tags = [tag for tag, _ in parsed.tags]
    assert tags.count("script") == 1
    assert "img" not in tags
    assert not [name for _, attributes in parsed.tags for name in attributes if name.startswith("on")]
    assert parsed.text.replace("`", "").count(HOSTILE.replace("`", "")) >= 10
    taking = {"src", "srcset", "action", "data", "xlink:href"}
    assert [found for _, attributes in parsed.tags for found in attributes.items() if found[0] in taking] == []
    links = [attributes["href"] or "" for tag, attributes in parsed.tags if tag == "a"]
    assert {link[0] for link in links} == {"#"}
    ids = [attributes["id"] for _, attributes in parsed.tags if "id" in attributes]
    assert len(set(ids)) == len(ids)
    assert {link[1:] for link in links} <= set(ids)
    assert list((tmp_path / "new").iterdir()) == [tmp_path / "new" / "bench.html"]


def test_a_page_says_what_the_findings_say(words: Kept) -> None:
    failing = replace(words.findings, claims=[Claim("words lost", 3, 0, "most"), *words.findings.claims])
    other = msgspec.structs.replace(words, name="other", short=True, findings=failing)
    text = " ".join(Parsed(body([words, other])).text.split())
    assert "2 experiments; claims: 4 hold, 1 does not, 2 have no bound." in text
    assert "other: words lost: 3, at most 0" in text.partition("Claims that do not hold")[2]
    for part in (
        "must be 40",
        "rate, items/s",
        "a source takes nothing",
        "One graph, no model.",
        "JAX on cpu",
        "headrace bench words",
    ):
        assert part in text
    assert text.count("Measured with the short settings") == 1
    assert "None." in Parsed(body([words])).text


def test_every_plot_is_drawn_with_its_numbers(words: Kept) -> None:
    svgs = [attributes for tag, attributes in Parsed(body([words])).tags if tag == "svg"]
    assert [svg["aria-label"] for svg in svgs] == ["Words out: over time"]
    assert "data-plot" in svgs[0]


def test_code_is_code_and_the_rest_is_escaped() -> None:
    assert str(said("`a<b` & c")) == "<code>a&lt;b</code> &amp; c"
    assert re.search("<code>", str(said("a ` alone"))) is None
