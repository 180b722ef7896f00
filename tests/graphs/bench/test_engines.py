"""Engines beside a forward pass without caches: what is equal, what is a tie, and what is told of one that is not there."""

from pathlib import Path

import numpy as np
import pytest

from graphs.bench.engines.compared import Compared, compared, num_changed, same_bits
from graphs.bench.engines.experiment import ENGINES_EXPERIMENT, EnginesConfig
from graphs.bench.engines.makers import ENGINES
from graphs.bench.engines.talks import Talk, Turns, context_of
from stages.policy import Sample

SERVER = Path(__file__).parents[3] / EnginesConfig().llama_server
SHORT = ENGINES_EXPERIMENT.short
OURS = [kind.name for kind in ENGINES if kind.draws]


def silent(done: int, total: int, what: str) -> None:
    """Nobody looks on."""


@pytest.mark.slow
def test_the_engine_says_what_a_forward_pass_without_caches_says_in_every_shape_before_and_after_a_sync():
    found = ENGINES_EXPERIMENT.run(SHORT.model_copy(update={"llama_server": Path("nowhere")}), silent)
    assert [claim for claim in found.claims if claim.holds is not True] == []
    rows = {(row["engine"], row["weights"]): row for row in found.tables[0].rows}
    assert list(dict.fromkeys(engine for engine, _ in rows)) == OURS
    for name in OURS[1:]:
        assert rows[name, "first"]["bits"] is True
        assert rows[name, "after the sync"]["changed"] > SHORT.num_talks // 2
        assert rows[name, "first"]["tokens"] > SHORT.num_talks * SHORT.max_tokens
    assert "nowhere; make bench-peers builds it" in found.tables[1].rows[-1]["talks"]
    assert "Not on this machine: llama.cpp server" in found.answer


@pytest.mark.extra
@pytest.mark.skipif(not SERVER.exists(), reason="make bench-peers builds it")
def test_llama_cpp_says_the_same_on_our_weights_and_on_new_ones():
    found = ENGINES_EXPERIMENT.run(SHORT.model_copy(update={"llama_server": SERVER}), silent)
    claims = [claim for claim in found.claims if claim.what.startswith("llama.cpp")]
    assert len(claims) == 5
    assert [claim for claim in claims if claim.holds is not True] == []


def talk(temperature: float = 0.0) -> Talk:
    return Talk(0, np.array([1, 2], np.int32), np.array([9], np.int32), 4, (0,), temperature)


def said(*turns: list[int], off: float = 0.0, stop: str = "length") -> Turns:
    return tuple(
        Sample(np.array(ids, np.int32), np.full(len(ids), off - 1.0, np.float32), np.zeros(len(ids), np.int32), stop)
        for ids in turns
    )


def scores(context: np.ndarray) -> np.ndarray:
    """Token 5 and 6 are nearly as likely as one another, 7 is not; the context is what the reply parted from."""
    assert context.tolist() in ([1, 2], [1, 2, 5, 5, 9, 5])
    row = np.zeros((len(context), 10), np.float32)
    row[-1, [5, 6, 7]] = 3.0, 3.0001, 2.0
    return row


def test_tokens_count_up_to_the_first_that_differs_and_one_as_likely_is_a_tie():
    ours = said([5, 5], [5, 5])
    assert compared([talk()], [ours], [ours], scores, 1e-4) == Compared(1, 4, 0, 0, 0, 0.0)
    assert compared([talk()], [ours], [said([5, 5], [5, 6])], scores, 1e-4) == Compared(1, 4, 1, 0, 0, 0.0)
    assert compared([talk()], [ours], [said([6, 5], [5, 5])], scores, 1e-4) == Compared(1, 1, 1, 0, 0, 0.0)
    assert compared([talk()], [ours], [said([7, 5], [5, 5])], scores, 1e-4) == Compared(1, 1, 0, 1, 0, 0.0)


def test_a_token_that_was_drawn_is_never_a_tie_and_neither_is_a_reply_that_is_longer():
    ours = said([5, 5], [5, 5])
    assert compared([talk(1.0)], [ours], [said([6, 5], [5, 5])], scores, 1e-4).different == 1
    assert compared([talk()], [ours], [said([5, 5], [5, 5, 5])], scores, 1e-4) == Compared(1, 5, 0, 1, 0, 0.0)


def test_another_stop_reason_and_log_probabilities_that_are_off_are_told():
    ours = said([5, 5], [5, 5])
    found = compared([talk()], [ours], [said([5, 5], [5, 5], off=0.25, stop="stop")], scores, 1e-4)
    assert found == Compared(1, 4, 0, 0, 2, 0.25)


def test_bits_are_those_of_log_probabilities_too():
    ours = said([5, 5], [5, 5])
    assert same_bits([ours], [said([5, 5], [5, 5])])
    assert not same_bits([ours], [said([5, 5], [5, 5], off=1e-7)])
    assert num_changed([ours, ours], [ours, said([5, 5], [5, 6])]) == 1


def test_the_context_of_a_turn_holds_what_was_said_and_replied_before():
    assert context_of(talk(), said([5, 6], [7]), 0).tolist() == [1, 2]
    assert context_of(talk(), said([5, 6], [7]), 1).tolist() == [1, 2, 5, 6, 9]
