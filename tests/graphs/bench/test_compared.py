"""Two folders side by side: what came out otherwise, by how much, and under what other circumstances."""

import math
from dataclasses import replace

import msgspec

from graphs.bench.compared import WIDTH, compared
from graphs.bench.experiment import Claim
from graphs.bench.kept import Kept


def with_claims(kept: Kept, *claims: Claim, name: str = "words") -> Kept:
    return msgspec.structs.replace(kept, name=name, seconds=2.0, findings=replace(kept.findings, claims=claims))


def told(one: Kept, *other: Kept) -> str:
    text = compared([one], other, ("runs/a", "runs/b"))
    assert max(map(len, text.splitlines())) <= WIDTH
    return text


def test_claims_that_came_out_otherwise_are_told_with_their_ratio(words: Kept) -> None:
    what = "rate over the model's, the least of all that were measured here"
    one = with_claims(words, Claim(what, 0.96, 0.93), Claim("lost", 0, 0))
    other = with_claims(words, Claim(what, 0.72, 0.93), Claim("lost", 0, 0))
    text = told(one, msgspec.structs.replace(other, seconds=3.0))
    lines = [line.split() for line in text.splitlines()]
    assert ["that", "were", "measured", "here", "0.960", "0.720", "0.750"] in lines
    assert "  holds in the first, does not in the second" in text
    assert ["seconds", "it", "took", "2.00", "3.00", "1.50"] in lines
    assert "1 of 2 claims came out the same" in text
    assert "lost" not in text


def test_claims_of_one_side_texts_and_numbers_without_a_ratio_are_told(words: Kept) -> None:
    one = with_claims(
        words, Claim("gone", 1), Claim("from 0", 0), Claim("nan", math.nan), Claim("text", "a" * 30, "a" * 30, "equal")
    )
    other = with_claims(
        words, Claim("from 0", 5), Claim("nan", math.nan), Claim("text", "b" * 30, "a" * 30, "equal"), Claim("new", 2)
    )
    lines = [line.split() for line in told(one, other).splitlines()]
    assert ["gone", "1"] in lines
    assert ["new", "2"] in lines
    assert ["from", "0", "0", "5"] in lines, "no ratio to 0"
    assert ["text", "below", "below"] in lines
    assert ["a" * 30] in lines
    assert ["b" * 30] in lines
    assert ["1", "of", "5", "claims", "came", "out", "the", "same"] in lines, "nan is nan again"


def test_claims_of_the_same_words_are_paired_in_their_order(words: Kept) -> None:
    one = with_claims(words, Claim("same", 1.0), Claim("same", 10.0))
    other = with_claims(words, Claim("same", 2.0), Claim("same", 40.0))
    lines = [line.split() for line in told(one, other).splitlines() if line.startswith("same")]
    assert lines == [["same", "1.00", "2.00", "2.00"], ["same", "10.0", "40.0", "4.00"]]


def test_another_machine_other_settings_and_missing_experiments_are_told(words: Kept) -> None:
    machine = msgspec.structs.replace(words.machine, cores=64.0)
    other = msgspec.structs.replace(with_claims(words), machine=machine, settings={**words.settings, "words": 9})
    text = " ".join(told(with_claims(words), other, with_claims(words, name="more")).split())
    assert "another machine:" in text
    assert "then 64 cores" in text
    assert "another setting: words: 40; then 9" in text
    assert "only in the second: more" in text
    same = told(with_claims(words), with_claims(words))
    assert "another" not in same.partition("Ratios")[0]
