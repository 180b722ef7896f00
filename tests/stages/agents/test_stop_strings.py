"""Turns that end on a stop string, from the agent down to the device: a small untrained model says what it will."""

import asyncio

import numpy as np
import pytest
from flax import nnx

from stages.agents.agent import Setting
from stages.agents.model_agent import ModelAgent
from stages.agents.sampling import SamplingConfig
from stages.envs.environment import Opening, Reply
from stages.models.config import ModelConfig
from stages.models.transformer import Transformer
from stages.records import Message, Status
from stages.rollout.config import EngineConfig
from stages.rollout.engine import Engine
from stages.text.compact import CompactChat
from stages.text.transcript import Transcript

CHAT = CompactChat()
END = CHAT.stop_ids[0]
MODEL = ModelConfig(
    vocab_size=CHAT.vocab_size, width=8, num_layers=1, num_heads=1, num_kv_heads=1, head_size=8, mlp_width=8,
    context_length=256,
)  # fmt: skip
CONFIG = EngineConfig(slots=4, context_length=256, prefill_rows=4, prefill_chunk=16)
DIGITS = tuple("0123456789")


class Nodding:
    """Says "go on" to whatever it hears, and notes it."""

    def __init__(self):
        self.heard = []

    async def step(self, message):
        self.heard.append(message.content)
        return Reply((Message("user", "go on"),))


def conversations(num: int, sampling: SamplingConfig) -> list[tuple[Status, Transcript, list[str]]]:
    async def one(engine: Engine, member: int):
        transcript, env = Transcript(), Nodding()
        opening = Opening((Message("user", "7"),))
        setting = Setting(engine, CHAT, env, opening, sampling, (0, 0, member, 0), str(member))
        ending = await ModelAgent().run(setting, transcript)
        return ending.status, transcript, env.heard

    async def main():
        async with Engine(Transformer(MODEL, nnx.Rngs(0)), CONFIG, decode=CHAT.decode) as engine:
            return await asyncio.gather(*(one(engine, member) for member in range(num)))

    return asyncio.run(main())


@pytest.mark.slow
def test_turns_end_on_their_string_and_are_closed_with_a_token_that_nobody_sampled():
    """S35, S36, S55, S87: mask, log-probability and version of every token that the policy did not sample say so; what it did
    sample is untouched, string included. Each turn is checked by the text of its own ids.
    """
    closed = 0
    for status, transcript, heard in conversations(8, SamplingConfig(stop_strings=DIGITS, max_turns=4, min_p=0.01)):
        ids, mask, logprobs = transcript.ids(), transcript.mask(), transcript.logprobs()
        assert status is Status.TRUNCATED_TURNS
        assert len(heard) == len(transcript.turns) == 4
        for turn, text in zip(transcript.turns, heard, strict=True):
            said, rest = ids[turn.start : turn.stop], ids[turn.stop : turn.stop + 2].tolist()
            on_string = said[-1] != END
            assert mask[turn.start : turn.stop].all()
            assert CHAT.decode(said) == text + "<|end|>" * (not on_string)
            assert not set(text[:-1]) & set(DIGITS)
            assert not on_string or text[-1] in DIGITS
            if turn is not transcript.turns[-1]:
                closing = [END, CHAT.vocabulary.mark("<|user|>")] if on_string else [CHAT.vocabulary.mark("<|user|>")]
                assert rest[: len(closing)] == closing
                closed += on_string
        np.testing.assert_array_equal(np.isnan(logprobs), ~mask)
        np.testing.assert_array_equal(transcript.versions() < 0, ~mask)
    assert closed > 10


@pytest.mark.slow
def test_top_k_of_the_config_reaches_the_device():
    """With the one most likely token left, every member says the same and is certain of it."""
    said = conversations(3, SamplingConfig(top_k=1, max_turns=1, max_tokens_per_turn=5))
    texts = {CHAT.decode(transcript.ids()) for _, transcript, _ in said}
    assert len(texts) == 1
    assert all(np.all(transcript.logprobs()[transcript.mask()] == 0.0) for _, transcript, _ in said)
