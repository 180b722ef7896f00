"""The engine on a small model: what it samples against the training forward pass, and what it does when disturbed;
long because all of its tests share one small model and the programs compiled for it.
"""

import asyncio
import functools
import threading
import time
from collections.abc import Awaitable, Callable

import jax
import numpy as np
import pytest
from flax import nnx

from stages.models.config import ModelConfig
from stages.models.logprobs import target_logprobs
from stages.models.transformer import Transformer
from stages.policy import Sample, SampleRequest
from stages.records import Weights
from stages.rollout.engine import Engine, EngineConfig

MODEL = ModelConfig(
    vocab_size=29, width=16, num_layers=2, num_heads=4, num_kv_heads=2, head_size=4, mlp_width=24, tie_embeddings=False,
    context_length=48,
)  # fmt: skip
CONFIG = EngineConfig(slots=4, context_length=48, prefill_rows=2, prefill_chunk=8)
RANDOM_IDS = np.random.default_rng(0).integers(0, MODEL.vocab_size, 400).astype(np.int32)


def make_model(seed: int = 0) -> Transformer:
    """A model whose logits spread over a few nats: neither uniform nor nearly certain."""
    model = Transformer(MODEL, nnx.Rngs(seed))
    model.unembedding_VW[...] = model.unembedding_VW[...] * 2
    return model


def weights_of(model: Transformer) -> Weights:
    return Weights(nnx.split(model, nnx.Param)[1])


def request(number: int, turn: int = 0, **changes) -> SampleRequest:
    """One of many different requests: its context and key are functions of its number."""
    fields = {
        "ids": RANDOM_IDS[number * 7 : number * 7 + 3 + number * 5 % 19],
        "max_tokens": 12,
        "stop_ids": (0,),
        "temperature": 0.8,
        "key": (1, 0, number, 0, turn),
        "session": f"episode {number}",
    }
    return SampleRequest(**{**fields, **changes})


def with_engine(use: Callable[[Engine], Awaitable], config: EngineConfig = CONFIG, model: Transformer | None = None, **kwargs):
    """Run ``use`` on an open engine. Engines of one shape share their programs, so only the first one compiles."""

    async def main():
        async with Engine(model or make_model(), config, **kwargs) as engine:
            return await asyncio.wait_for(use(engine), 60)

    return asyncio.run(main())


def before_each_step(engine: Engine, look: Callable[[], None]) -> None:
    """Have the thread of an open engine call this before each decode step."""
    decode = engine._device.decode

    def looked(work):
        look()
        return decode(work)

    engine._device.decode = looked


def assert_same(one: Sample, other: Sample) -> None:
    np.testing.assert_array_equal(one.ids, other.ids)
    np.testing.assert_array_equal(one.logprobs, other.logprobs)
    assert one.stop_reason == other.stop_reason


@nnx.jit
def forward(model: Transformer, *packed: np.ndarray) -> jax.Array:
    return model(*packed)


@functools.partial(nnx.jit, static_argnums=4)
def scored(model: Transformer, ids: np.ndarray, at: np.ndarray, segments: np.ndarray, temperature: float) -> jax.Array:
    targets = (segments > 0) & (at > 0)
    return target_logprobs(model.hidden(ids, at, segments), model.head, ids, targets, temperature)[0]


def trained_logprobs(model: Transformer, ids_T: np.ndarray, temperature: float) -> np.ndarray:
    """What the training forward pass gives each token of one segment."""
    num = len(ids_T)
    ids, positions = np.zeros((1, 48), np.int32), np.arange(48, dtype=np.int32)[None]
    ids[0, :num] = ids_T
    segments = (positions < num).astype(np.int32)
    return np.asarray(scored(model, ids, positions, segments, temperature))[0, :num]


def test_logprobs_over_two_turns_equal_those_of_the_training_forward_pass():
    """S80, S62: at the sampling temperature, over the very ids sent; the first turn's reply is cached by decoding, so the
    second turn also checks decoding against reading in.
    """
    model = make_model()

    async def use(engine: Engine):
        first = await engine.sample(request(1))
        ids = np.concatenate([request(1).ids, first.ids, RANDOM_IDS[300:305]])
        return ids, first, await engine.sample(request(1, turn=1, ids=ids))

    ids, first, second = with_engine(use, model=model)
    whole = trained_logprobs(model, np.concatenate([ids, second.ids]), 0.8)
    start = len(request(1).ids)
    np.testing.assert_allclose(first.logprobs, whole[start : start + len(first.ids)], atol=1e-4)
    np.testing.assert_allclose(second.logprobs, whole[len(ids) :], atol=1e-4)
    assert len(first.ids) > 3
    assert first.ids.dtype == first.versions.dtype == np.int32
    assert first.logprobs.dtype == np.float32


def test_greedy_reply_takes_the_most_likely_token_each_time():
    """S81: with log-probabilities at temperature 1; checked by running the training forward pass once per token."""
    model = make_model()
    sample = with_engine(lambda engine: engine.sample(request(2, temperature=0.0, stop_ids=(), max_tokens=5)), model=model)
    ids = request(2).ids
    for token in sample.ids:
        num = len(ids)
        padded, positions = np.zeros((1, 48), np.int32), np.arange(48, dtype=np.int32)[None]
        padded[0, :num] = ids
        assert token == forward(model, padded, positions, (positions < num).astype(np.int32))[0, num - 1].argmax()
        ids = np.append(ids, token)
    np.testing.assert_allclose(sample.logprobs, trained_logprobs(model, ids, 1.0)[-5:], atol=1e-4)


def test_request_gives_the_same_bits_alone_and_in_any_company():
    """Sixteen requests one by one, all at once over four slots, and all at once in another order: slots, rows of prefill
    steps and neighbours differ each time.
    """

    async def one_by_one(engine: Engine):
        return [await engine.sample(request(number)) for number in range(16)]

    async def together(engine: Engine, order=range(16)):
        samples = await asyncio.gather(*(engine.sample(request(number)) for number in order))
        return dict(zip(order, samples, strict=True))

    alone = with_engine(one_by_one)
    for order in (range(16), [*np.random.default_rng(1).permutation(16).tolist()]):
        crowd = with_engine(lambda engine, order=order: together(engine, order))
        for number in range(16):
            assert_same(alone[number], crowd[number])


def test_members_of_a_group_differ_and_the_same_keys_give_them_again():
    """S86: one prompt, eight members; S107: another run seed gives other samples."""

    async def use(engine: Engine, seed: int = 7):
        def ask(member: int):
            return engine.sample(request(3, key=(seed, 0, member, 0, 0), session=f"{member}", stop_ids=()))

        return [tuple(sample.ids.tolist()) for sample in await asyncio.gather(*map(ask, range(8)))]

    first = with_engine(use)
    assert len(set(first)) == 8
    assert with_engine(use) == first
    assert not set(with_engine(lambda engine: use(engine, seed=8))) & set(first)


def test_next_turn_reads_in_only_new_tokens_and_an_evicted_session_all_of_them():
    """S83: the settings show in the engine's own report."""

    async def use(engine: Engine):
        first = await engine.sample(request(1, stop_ids=()))
        read = [engine.statistics().prefilled_tokens]
        ids = np.concatenate([request(1).ids, first.ids, RANDOM_IDS[:4]])
        second = await engine.sample(request(1, ids=ids, max_tokens=1))
        read.append(engine.statistics().prefilled_tokens)
        ids = np.append(ids, second.ids)
        # With one slot, another session's request must evict the idle one.
        await engine.sample(request(2, ids=RANDOM_IDS[:1], max_tokens=1))
        await engine.sample(request(1, ids=ids, max_tokens=1))
        read.append(engine.statistics().prefilled_tokens)
        return np.diff([0, *read]).tolist(), len(ids), engine.statistics()

    one_slot = CONFIG.model_copy(update={"slots": 1, "prefill_rows": 1})
    read, length, statistics = with_engine(use, one_slot)
    # The last token of a context is decoded; the first reply's last token was never fed.
    assert read == [len(request(1).ids) - 1, 1 + 4 - 1, length - 1]
    assert (statistics.evictions, statistics.steps, statistics.sampled_tokens) == (2, 15, 15)


def test_nothing_compiles_after_the_engine_has_opened():
    """S91: counted by JAX itself, over turns, temperatures, truncation, untempered scores, evictions and new weights."""
    compiled = []

    def varied(n: int, turn: int) -> SampleRequest:
        return request(
            n, turn, temperature=n % 3 / 2, top_k=n % 4, top_p=1 - n % 2 / 5, min_p=n % 5 / 20, untempered=n % 2 == 0
        )

    async def use(engine: Engine):
        weights = weights_of(make_model(1))
        jax.monitoring.register_event_duration_secs_listener(lambda event, *_, **__: compiled.append(event))
        for turn in range(2):
            await asyncio.gather(*(engine.sample(varied(n, turn)) for n in range(12)))
            await engine.load(weights, turn + 1)
        return engine.statistics().compilations

    try:
        # Decode, the one size of prefill step, copying a slot, copying one out.
        assert with_engine(use) == 4
    finally:
        jax.monitoring.clear_event_listeners()
    assert [event for event in compiled if "compile" in event] == []


def test_cancelled_request_frees_its_slot_for_the_next():
    async def use(engine: Engine):
        async with asyncio.TaskGroup() as group:
            endless = [group.create_task(engine.sample(request(n, max_tokens=10**6, ids=RANDOM_IDS[:1]))) for n in range(9)]
            await asyncio.sleep(0)
            for task in endless:
                task.cancel()
        await engine.sample(request(3))
        return engine.statistics()

    statistics = with_engine(use)
    assert (statistics.slots_busy, statistics.waiting) == (0, 0)


def test_context_without_room_for_a_token_is_refused_with_the_numbers():
    """S34: and one that leaves room for a single token gets just that, whatever it asked for."""

    async def use(engine: Engine):
        with pytest.raises(ValueError, match=r"at most 47 tokens.*context length 48; got 48; .*session 'episode 0'"):
            await engine.sample(request(0, ids=RANDOM_IDS[:48]))
        return await engine.sample(request(0, ids=RANDOM_IDS[:47], stop_ids=()))

    sample = with_engine(use)
    assert (len(sample.ids), sample.stop_reason) == (1, "length")


def test_a_request_that_cannot_be_served_is_refused_and_harms_nobody():
    async def use(engine: Engine):
        for changes in ({"ids": np.zeros(3, np.float32)}, {"top_k": 2**31}, {"session": ["s"]}, {"key": (2**64, 0, 0, 0, 0)}):
            with pytest.raises(ValueError, match=r"expected .* in engine\.sample, session"):
                await engine.sample(request(0, **changes))
        for version in (-3, 2**31):
            with pytest.raises(ValueError, match=rf"expected a version from 0 to 2147483647; got {version}; .* in engine.load"):
                await engine.load(weights_of(make_model(1)), version)
        return await engine.sample(request(0)), engine.statistics().version

    sample, version = with_engine(use)
    assert_same(sample, with_engine(lambda engine: engine.sample(request(0))))
    assert version == 0


def test_new_weights_give_what_a_fresh_engine_with_them_gives():
    """S82: the second turn of a session whose cache was filled under the old weights."""

    async def across(engine: Engine):
        first = await engine.sample(request(1))
        ids = np.concatenate([request(1).ids, first.ids])
        await engine.load(weights_of(make_model(1)), 1)
        return ids, await engine.sample(request(1, ids=ids))

    ids, second = with_engine(across)
    fresh = with_engine(lambda engine: engine.sample(request(1, ids=ids)), model=make_model(1), version=1)
    assert_same(second, fresh)
    assert set(second.versions.tolist()) == {1}


class Gate:
    """Holds the engine's thread before every sixth decode step, until told to go on."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.reached, self.go = asyncio.Event(), threading.Event()
        self.decodes = 0

    def __call__(self) -> None:
        self.decodes += 1
        if self.decodes in (6, 12, 18):
            self.loop.call_soon_threadsafe(self.reached.set)
            self.go.wait(30)
            self.go.clear()


def test_load_while_sampling_labels_each_token_with_the_version_that_sampled_it():
    """S84, S11, S14: three loads land in the middle of running replies; the replies go on, and each token's log-probability is
    that of the weights its label names, given the whole context.
    """
    models = [make_model(seed) for seed in range(4)]

    async def main():
        gate = Gate()
        config = CONFIG.model_copy(update={"prefill_wait": 0})
        async with Engine(models[0], config) as engine:
            before_each_step(engine, gate)
            running = [asyncio.ensure_future(engine.sample(request(n, stop_ids=(), max_tokens=25))) for n in range(3)]
            for version in (1, 2, 3):
                await gate.reached.wait()
                gate.reached.clear()
                load = asyncio.ensure_future(engine.load(weights_of(models[version]), version))
                await asyncio.sleep(0)
                gate.go.set()
                await load
            return await asyncio.gather(*running)

    for number, sample in enumerate(asyncio.run(main())):
        # Held before its sixth step, the engine still samples that token under the old version.
        assert sample.versions.tolist() == [0] * 6 + [1] * 6 + [2] * 6 + [3] * 7
        ids = np.concatenate([request(number).ids, sample.ids])
        by_version = np.array([trained_logprobs(model, ids, 0.8)[-25:] for model in models])
        np.testing.assert_allclose(sample.logprobs, by_version[sample.versions, np.arange(25)], atol=1e-4)


def test_weights_that_do_not_fit_are_refused_and_the_old_version_stays_in_force():
    """S85: a failed load leaves nothing behind that would refuse the next."""
    other = Transformer(MODEL.model_copy(update={"mlp_width": 20}), nnx.Rngs(0))

    async def use(engine: Engine):
        with pytest.raises(ValueError, match=r"blocks.0.mlp.gate.kernel_IO: expected float32\[16, 24\], got float32\[16, 20\]"):
            await engine.load(weights_of(other), 1)
        before = engine.statistics().version
        sample = await engine.sample(request(1))
        await asyncio.gather(engine.load(weights_of(make_model(1)), 1), engine.load(weights_of(make_model(2)), 2))
        return before, sample, engine.statistics().version

    before, sample, after = with_engine(use)
    assert (before, after) == (0, 2)
    assert set(sample.versions.tolist()) == {0}


def test_version_never_goes_back():
    async def use(engine: Engine):
        await engine.load(weights_of(make_model(1)), 6)
        with pytest.raises(ValueError, match=r"version of at least 6, the one in force; got 4"):
            await engine.load(weights_of(make_model(2)), 4)
        return engine.statistics().version

    assert with_engine(use, version=5) == 6


def test_version_0_begins_a_new_line_whatever_is_in_force():
    """S85: the next run of a program begins at 0, with nothing cached from the one before."""
    one, other = make_model(1), make_model(2)

    async def use(engine: Engine):
        await engine.load(weights_of(one), 7)
        await engine.sample(request(1))
        await engine.load(weights_of(other), 0)
        sample = await engine.sample(request(1, turn=1))
        await engine.load(weights_of(one), 1)
        return sample, engine.statistics().version

    sample, version = with_engine(use)
    fresh = with_engine(lambda engine: engine.sample(request(1, turn=1)), model=other)
    assert_same(sample, fresh)
    assert set(sample.versions.tolist()) == {0}
    assert version == 1


def test_parameters_shared_with_a_trainer_stay_usable():
    model = make_model()
    with_engine(lambda engine: engine.sample(request(1)), model=model)
    assert np.isfinite(trained_logprobs(model, request(1).ids, 1.0)).all()


def test_logprob_that_is_no_number_fails_its_request_and_not_the_engine():
    """S88."""
    broken = make_model()
    broken.final_norm_W[...] = broken.final_norm_W[...] * np.nan

    async def use(engine: Engine):
        await engine.load(weights_of(broken), 1)
        with pytest.raises(FloatingPointError, match=r"got nan .* session 'episode 1' in the engine, weights version 1"):
            await engine.sample(request(1))
        await engine.load(weights_of(make_model()), 2)
        return await engine.sample(request(1))

    assert np.isfinite(with_engine(use).logprobs).all()


def test_death_of_the_thread_reaches_everyone_who_waits_and_everyone_who_asks_later():
    """S13: running, waiting for a slot, or asking afterwards; weights too."""

    steps = iter(range(5))

    def die() -> None:
        if next(steps) == 4:
            raise OSError("disk full")

    async def use(engine: Engine):
        before_each_step(engine, die)
        results = await asyncio.gather(*(engine.sample(request(n, stop_ids=())) for n in range(9)), return_exceptions=True)
        for later in (engine.sample(request(1)), engine.load(weights_of(make_model(1)), 1)):
            with pytest.raises(RuntimeError, match="disk full"):
                await later
        engine.release("episode 1")
        return results

    for error in with_engine(use):
        assert isinstance(error, RuntimeError)
        assert isinstance(error.__cause__, OSError)


def test_leaving_the_engine_fails_what_is_pending_and_ends_the_thread():
    """S26: nothing keeps the process alive."""

    async def main():
        async with Engine(make_model(), CONFIG) as engine:
            pending = [asyncio.ensure_future(engine.sample(request(n, stop_ids=(), max_tokens=40))) for n in range(9)]
            await asyncio.sleep(0)
        return await asyncio.gather(*pending, return_exceptions=True), engine

    results, engine = asyncio.run(main())
    assert any("closed" in str(result) for result in results)
    assert all(isinstance(result, (Sample, RuntimeError)) for result in results)
    assert "headrace-engine" not in {thread.name for thread in threading.enumerate()}
    with pytest.raises(RuntimeError, match="closed"):
        asyncio.run(engine.sample(request(1)))


def test_engine_may_be_entered_again_and_begins_anew():
    """S13, S26: in another loop, after a close and after the death of its thread; both times it samples as a new one does."""
    engine = Engine(make_model(), CONFIG)

    async def enter():
        async with engine:
            sample = await engine.sample(request(1))
            await engine.load(weights_of(make_model(1)), 3)
            with pytest.raises(RuntimeError, match="got one that is open"):
                await engine.__aenter__()
            return sample, engine.statistics().sampled_tokens

    async def die():
        async with engine:
            engine._mailbox.post(lambda: exec("raise OSError('gone')"))
            with pytest.raises(RuntimeError, match="gone"):
                await engine.sample(request(1))

    first, tokens = asyncio.run(asyncio.wait_for(enter(), 60))
    asyncio.run(asyncio.wait_for(die(), 60))
    again, tokens_again = asyncio.run(asyncio.wait_for(enter(), 60))
    assert_same(first, again)
    assert set(again.versions.tolist()) == {0}
    assert tokens == tokens_again


def test_end_of_the_thread_that_nobody_asked_for_reaches_who_waits():
    """S13: the thread ends without an error of its own."""

    async def use(engine: Engine):
        engine._mailbox.close()
        return await asyncio.gather(*(engine.sample(request(n)) for n in range(3)), return_exceptions=True)

    assert ["thread came to an end" in str(error) for error in with_engine(use)] == [True] * 3


def test_engine_that_was_not_entered_says_so():
    engine = Engine(make_model(), CONFIG)
    for work in (engine.sample(request(1)), engine.load(weights_of(make_model()), 1)):
        with pytest.raises(RuntimeError, match="not been entered"):
            asyncio.run(work)


def test_prefill_step_that_is_not_full_waits_while_others_decode():
    """A request of one token decodes at once; the other's context, one row of two, is held back for three decode steps."""
    kinds: list[str] = []

    async def use(engine: Engine):
        before_each_step(engine, lambda: kinds.append("decode"))
        read_in = engine._device.read_in
        engine._device.read_in = lambda work: (kinds.append("prefill"), read_in(work))
        long = request(1, ids=RANDOM_IDS[:1], stop_ids=(), max_tokens=40)
        await asyncio.gather(engine.sample(long), engine.sample(request(2, ids=RANDOM_IDS[:8])))

    with_engine(use, CONFIG.model_copy(update={"prefill_wait": 3}))
    assert kinds[:4] == ["decode"] * 3 + ["prefill"] or kinds[:5] == ["decode"] * 4 + ["prefill"]


def test_idle_engine_uses_no_processor_time():
    async def use(engine: Engine):
        await engine.sample(request(1))
        used = time.process_time()
        await asyncio.sleep(0.05)
        return time.process_time() - used

    assert with_engine(use) < 0.03


def test_a_wave_of_outcomes_wakes_few_at_a_time_in_order():
    """S24: what else runs on the loop gets its turn between them."""

    async def use(engine: Engine):
        futures = [engine._expect(object()) for _ in range(100)]
        woken: list[int] = []
        for future in futures:
            future.add_done_callback(lambda future: woken.append(future.result()))
        engine._settle([(ticket, number) for number, ticket in enumerate(engine._pending)])
        counts = [0]
        while counts[-1] < 100:
            await asyncio.sleep(0)
            counts.append(len(woken))
        return woken, max(np.diff(counts))

    assert with_engine(use) == (list(range(100)), 32)


def test_settings_that_do_not_fit_are_refused():
    """S105."""
    with pytest.raises(ValueError, match="slot\n"):
        EngineConfig(slot=4)


def test_tokens_are_heard_one_by_one_and_the_last_with_the_sample():
    async def use(engine: Engine):
        heard = [[] for _ in range(6)]
        asked = [request(number, max_tokens=12) for number in range(6)]
        samples = await asyncio.gather(*(engine.sample(each, heard[number].append) for number, each in enumerate(asked)))
        alone = [await engine.sample(request(number, max_tokens=12, session=f"alone {number}")) for number in range(6)]
        return heard, samples, alone

    heard, samples, alone = with_engine(use)
    for tokens, sample, own in zip(heard, samples, alone, strict=True):
        assert [token.id for token in tokens] == sample.ids[:-1].tolist()
        assert [token.logprob for token in tokens] == sample.logprobs[:-1].tolist()
        assert {token.version for token in tokens} <= {0}
        assert sample.ids.tolist() == own.ids.tolist()


def test_a_paused_engine_makes_no_step_and_takes_weights():
    async def use(engine: Engine):
        engine.pause()
        task = asyncio.create_task(engine.sample(request(0)))
        other = make_model(1)
        await engine.load(weights_of(other), 3)
        steps = engine.statistics().steps
        assert engine.statistics().slots_busy == 1
        assert not task.done()
        engine.resume()
        return steps, await task, await engine.sample(request(0, session="own"))

    steps, sample, own = with_engine(use)
    assert steps == 0
    assert sample.versions.tolist() == [3] * len(sample.ids)
    assert sample.ids.tolist() == own.ids.tolist()
