"""The engine in the trace of a run: its steps, its slots and its rates against what it answered."""

import asyncio
import itertools
from pathlib import Path

import numpy as np
import pytest
from flax import nnx

from flow.trace import PerfettoWriter, Slice, Trace, read_trace, recording
from stages.models.config import ModelConfig
from stages.models.transformer import Transformer
from stages.policy import Sample, SampleRequest
from stages.records import Weights
from stages.rollout.config import EngineConfig
from stages.rollout.engine import Engine
from stages.rollout.statistics import EngineStatistics

pytestmark = pytest.mark.slow  # An engine compiles.

MODEL = ModelConfig(
    vocab_size=29, width=16, num_layers=2, num_heads=4, num_kv_heads=2, head_size=4, mlp_width=24, tie_embeddings=False,
    context_length=48,
)  # fmt: skip
CONFIG = EngineConfig(slots=2, context_length=48, prefill_rows=2, prefill_chunk=8)
IDS = np.random.default_rng(0).integers(0, MODEL.vocab_size, 400).astype(np.int32)


def request(number: int, turn: int = 0, length: int = 11) -> SampleRequest:
    ids = IDS[number * 20 : number * 20 + length]
    return SampleRequest(ids, 12, (), 0.8, (1, 0, number, 0, turn), f"episodes/{number}")


class Recorded:
    """One engine that answered six requests over two slots, took new weights, gave one request up, and was idle for a while."""

    def __init__(self, path: Path) -> None:
        self.samples: list[Sample] = []
        with PerfettoWriter(path) as recorder, recording(recorder):
            asyncio.run(self._use())
        self.trace: Trace = read_trace(path)

    async def _use(self) -> None:
        model = Transformer(MODEL, nnx.Rngs(0))
        async with Engine(model, CONFIG) as engine:
            self.samples = await asyncio.gather(*(engine.sample(request(number)) for number in range(6)))
            await engine.load(Weights(nnx.state(Transformer(MODEL, nnx.Rngs(1)), nnx.Param)), 3)
            given_up = asyncio.ensure_future(engine.sample(request(7)))
            while not engine.statistics().slots_busy:  # noqa: ASYNC110 - the engine's thread tells nobody
                await asyncio.sleep(0)
            given_up.cancel()
            await asyncio.gather(given_up, return_exceptions=True)
            await asyncio.sleep(0.3)
            self.statistics: EngineStatistics = engine.statistics()

    def on(self, track: str) -> list[Slice]:
        return [each for each in self.trace.slices if self.trace.tracks[each.track].name == track]

    def values(self, counter: str) -> list[float]:
        (number,) = (number for number, track in self.trace.tracks.items() if track.name == counter)
        return [each.value for each in self.trace.counts if each.track == number]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return Recorded(tmp_path_factory.mktemp("engine") / "trace")


def test_compiling_reading_in_decoding_and_weights_are_slices_that_add_up(recorded: Recorded) -> None:
    engine = recorded.on("engine")
    whole = [each for each in engine if each.depth == 0]
    assert whole[0].name == "open"
    assert {each.name for each in whole[1:]} == {"prefill", "decode", "weights"}
    statistics = recorded.statistics
    for kind, tokens in (("prefill", statistics.prefilled_tokens), ("decode", statistics.sampled_tokens)):
        assert sum(each.args["tokens"] for each in whole if each.name == kind) == tokens
    assert sum(each.args["steps"] for each in whole if each.name == "decode") == statistics.steps
    busy_s = sum(each.args["busy_us"] for each in whole if each.name == "decode") / 1e6
    assert busy_s == pytest.approx(statistics.decode_s, abs=1e-4)
    assert [each.args for each in whole if each.name == "weights"] == [{"version": 3}]
    assert all(before.end_ns <= after.start_ns for before, after in itertools.pairwise(whole))


def test_each_program_is_compiled_in_the_open_with_its_shape(recorded: Recorded) -> None:
    """S91: all of them before the first request; programs of this shape may be those of another test's engine."""
    engine = recorded.on("engine")
    compiled = [each for each in engine if each.name == "compile"]
    assert {(each.args["program"], each.args.get("shape")) for each in compiled} <= {
        ("prefill", "2x8"), ("prefill", "1x8"), ("decode", "2"), ("copy", None), ("row", None),
    }  # fmt: skip
    assert {each.depth for each in compiled} <= {1}


def test_each_slot_has_a_track_with_a_slice_for_each_request_that_held_it(recorded: Recorded) -> None:
    slots = [number for number, track in recorded.trace.tracks.items() if track.name.startswith("slot ")]
    engine = next(number for number, track in recorded.trace.tracks.items() if track.name == "engine")
    assert {recorded.trace.tracks[number].parent for number in slots} == {engine}
    assert len(slots) == CONFIG.slots
    held = {each.args["item"]: each for number in slots for each in recorded.trace.slices if each.track == number}
    assert set(held) == {f"episodes/{number}" for number in (*range(6), 7)}
    for number, sample in enumerate(recorded.samples):
        args = held[f"episodes/{number}"].args
        assert (args["turn"], args["prompt"], args["cached"]) == (0, 11, 0)
        assert args["sampled"] == len(sample.ids) == 12
        assert args["queue_us"] == round(sample.queue_s * 1e6)
        assert args["prefill_us"] == round(sample.prefill_s * 1e6)
    assert "sampled" not in held["episodes/7"].args, "it was given up"
    for number in slots:
        alone = [each for each in recorded.trace.slices if each.track == number]
        assert all(before.end_ns <= after.start_ns for before, after in itertools.pairwise(alone))


def test_a_reply_tells_how_long_it_waited_was_read_in_and_decoded(recorded: Recorded) -> None:
    """S104: six requests over two slots, so the last ones waited for the first ones."""
    for sample in recorded.samples:
        assert min(sample.queue_s, sample.prefill_s, sample.decode_s) >= 0
        assert sample.decode_s > 0
    waits = sorted(sample.queue_s for sample in recorded.samples)
    assert waits[-1] > recorded.samples[0].decode_s
    assert waits[0] < waits[-1] / 2


def test_counters_tell_rates_slots_and_what_waits_and_are_0_while_the_engine_is_idle(recorded: Recorded) -> None:
    assert max(recorded.values("engine sampled")) > 0 or recorded.statistics.decode_s < 0.25
    assert recorded.values("engine sampled")[-1] == 0
    assert recorded.values("engine slots in use")[-1] == 0
    assert recorded.values("engine waiting")[-1] == 0
    assert recorded.values("engine cache found")[-1] == recorded.statistics.kept_tokens + recorded.statistics.shared_tokens
    assert recorded.values("engine cache evicted")[-1] == recorded.statistics.evicted_tokens > 0


def test_an_engine_that_nobody_records_tells_the_same_times() -> None:
    async def use() -> Sample:
        async with Engine(Transformer(MODEL, nnx.Rngs(0)), CONFIG) as engine:
            return await engine.sample(request(1))

    sample = asyncio.run(use())
    assert min(sample.queue_s, sample.prefill_s, sample.decode_s) >= 0
