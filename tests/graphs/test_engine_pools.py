"""Overload waits in the graph, in order, and never for ever: over a played engine for many orders, and over a real one."""

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest
from flax import nnx

from flow import Context, Run, Summary
from flow.testing import Simulated, simulate
from flow.trace import PerfettoWriter, Slice, read_trace
from graphs.calculator import calculator
from graphs.engine_pools import EnginePools, engine_pools
from graphs.evaluate import evaluate
from graphs.parts import Parts
from graphs.rl import rl
from stages.agents.dialogue import Dialogue, Role
from stages.agents.model_agent import ModelAgent
from stages.agents.sampling import SamplingConfig
from stages.envs.environment import Opening, Reply
from stages.envs.housed import on_loop
from stages.policy import Sample, SampleRequest
from stages.records import Batch, Message, Task, ToolCall, Weights
from stages.rollout.config import EngineConfig
from stages.rollout.engine import Engine
from stages.scores import Scores
from stages.text.chat import Chat
from stages.train.gate import Gate, GateConfig

TWO = EngineConfig(slots=2, context_length=64, prefill_rows=2, prefill_chunk=16)
CROWDED = {
    "as it is": TWO,
    "never": TWO.model_copy(update={"eviction": "never"}),
    "never, kept": TWO.model_copy(update={"eviction": "never", "kept": 3}),
    "episode": TWO.model_copy(update={"swap": "episode"}),
    "episode, never": TWO.model_copy(update={"swap": "episode", "eviction": "never", "kept": 1}),
}


CALL = Message("assistant", "", (ToolCall("call", "calculator", {"expression": "6*7"}),))
USES_ITS_TOOL = (CALL, CALL, Message("assistant", "42"))


class PlayedEngine:
    """An engine by its promises alone, whose turns take some seconds and say what a script says."""

    context_length = 64

    def __init__(self, config: EngineConfig, chat: Chat, says: Sequence[Message]) -> None:
        self.config, self.version, self.most_waiting = config, 0, 0
        self._turns = [chat.write(said) for said in says]
        self._live: set[str] = set()
        self._running: set[str] = set()
        self._waiting: list[tuple[str, asyncio.Event]] = []
        self._loading: list[tuple[int, asyncio.Event]] = []

    async def sample(self, request: SampleRequest) -> Sample:
        session, place = request.session, asyncio.Event()
        self._waiting.append((session, place))
        self._move()
        self.most_waiting = max(self.most_waiting, len(self._waiting))
        try:
            await place.wait()
            await anyio.sleep(random.Random(str(request.key)).expovariate(1))
        finally:
            if place.is_set():
                self._running.discard(session)
            else:
                self._waiting.remove((session, place))
            self._move()
        ids = self._turns[request.key[-1]]
        return Sample(ids, np.full(len(ids), -0.5, np.float32), np.full(len(ids), self.version, np.int32), "stop")

    def release(self, session: str) -> None:
        self._live.discard(session)
        self._move()

    def abort(self, session: str) -> None: ...

    async def load(self, weights: Weights, version: int) -> None:
        done = asyncio.Event()
        self._loading.append((version, done))
        self._move()
        await done.wait()

    def _move(self) -> None:
        if self._loading and not (self.config.swap == "episode" and self._live):
            self.version, done = self._loading.pop(0)
            done.set()
        for session, place in list(self._waiting):
            if len(self._running) < self.config.slots and self._may_go_on(session):
                self._waiting.remove((session, place))
                self._live.add(session)
                self._running.add(session)
                place.set()

    def _may_go_on(self, session: str) -> bool:
        if session in self._live:
            return session not in self._running
        full = self.config.eviction == "never" and len(self._live) >= self.config.slots + self.config.kept
        held = self.config.swap == "episode" and bool(self._loading)
        return not full and not held


class PlayedTrainer:
    """Takes a second over each group; its weights are nothing."""

    weights = Weights(None)
    gate = Gate(GateConfig())

    def __init__(self, *parts: Any, **settings: Any) -> None: ...

    async def add(self, batch: Batch, context: Context) -> None:
        await anyio.sleep(1)

    def finish(self, context: Context) -> Weights:
        return self.weights


@pytest.fixture(scope="module")
def parts(config: Callable[..., Any]) -> Parts:
    parts = calculator(config(engine=TWO)).parts
    assert parts is not None
    parts.load()
    return parts


@pytest.fixture
def played(config: Any, parts: Parts, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Simulated, PlayedEngine]]:
    """Runs the ready graph between what is played: sixteen episodes at once for two slots, versions one apart at most."""
    monkeypatch.setattr("graphs.rl.Trainer", PlayedTrainer)
    monkeypatch.setattr("graphs.rl.gated", lambda trainer, *rest: trainer)
    settings = config().rl.model_copy(update={"max_lag": 1, "steps": 3, "groups_per_step": 3})

    def run(engine: EngineConfig, seed: int, says: Sequence[Message] = USES_ITS_TOOL, **changes: Any) -> Any:
        policy = PlayedEngine(engine, parts.chat, says)
        graph = rl(settings, replace(parts, engine=policy, **changes))
        return simulate(graph, seed, kill=0.01, late=0.1, slow=0.05), policy

    return run


def test_pools_hold_a_turn_for_each_slot_and_some_more_and_an_episode_for_each_cache():
    assert engine_pools(TWO) == EnginePools({"engine": 3}, "engine", {})
    assert engine_pools(EngineConfig(slots=32, eviction="never", kept=8)) == EnginePools(
        {"engine": 40, "sessions": 40}, "engine", {"sessions": 1}
    )
    assert engine_pools(CROWDED["episode"]) == EnginePools({}, None, {})
    assert engine_pools(CROWDED["episode, never"]) == EnginePools({"sessions": 3}, None, {"sessions": 1})


@pytest.mark.slow
@pytest.mark.parametrize("which", CROWDED)
def test_training_with_more_episodes_than_the_engine_holds_ends_in_every_order(which: str, played: Callable[..., Any]) -> None:
    """S13, S20: each seed is another order of tasks, with workers that are killed and others that come late."""
    for seed in range(12):
        simulated, engine = played(CROWDED[which], seed)
        assert simulated.summary.status == "completed"
        assert engine.version == 3
        if engine_pools(engine.config).turn is not None:
            assert engine.most_waiting <= TWO.turns - TWO.slots


@pytest.mark.parametrize(
    ("which", "wrong"), [("never", EnginePools({"engine": 3}, "engine", {})), ("episode", engine_pools(TWO))]
)
def test_without_the_pools_of_its_settings_the_same_engine_hangs(
    which: str, wrong: EnginePools, played: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the test above can fail: turns of new sessions would hold what those they wait for need to go on."""
    monkeypatch.setattr("graphs.rl.engine_pools", lambda config, sessions: wrong)
    with pytest.raises(RuntimeError, match="every task waits"):
        played(CROWDED[which], 0)


DEBATE: dict[str, Any] = {
    "agent": Dialogue([Role("one"), Role("other")]),
    "make_env": on_loop(lambda task: GoesOn()),
    "says": [Message("assistant", "42")] * 3,
}
"""Two roles in turn, each with a session of its own: three turns, so that the first speaks again."""


@pytest.mark.parametrize("which", ["never", "never, kept", "as it is"])
def test_an_episode_of_two_sessions_takes_two_units_and_never_waits_for_itself(which: str, played: Callable[..., Any]) -> None:
    for seed in range(4):
        simulated, engine = played(CROWDED[which], seed, **DEBATE)
        assert simulated.summary.status == "completed"
        assert engine.version == 3


def test_with_one_unit_for_its_two_sessions_it_hangs(played: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the test above can fail: each of two episodes holds one cache of two and waits for the other."""
    monkeypatch.setattr("graphs.rl.engine_pools", lambda config, sessions: engine_pools(config))
    with pytest.raises(RuntimeError, match="every task waits"):
        played(CROWDED["never"], 0, **DEBATE)


def test_an_agent_whose_episode_would_wait_for_itself_is_refused(played: Callable[..., Any]) -> None:
    one_cache = TWO.model_copy(update={"slots": 1, "eviction": "never"})
    for engine, said in ((one_cache, "raise engine.kept to 1, or set"), (CROWDED["episode"], "set engine.swap to token")):
        with pytest.raises(ValueError, match=f"got one of 2, which would wait for itself; {said}"):
            played(engine, 0, **DEBATE)


class Asked:
    """A real engine, with the birth numbers in the order in which first turns were asked for, and the number of turns."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self.config, self.context_length = engine, engine.config, engine.context_length
        self.births: list[int] = []
        self.turns = self.most_waiting = 0

    async def sample(self, request: SampleRequest) -> Sample:
        if request.key[-1] == 0:
            self.births.append(request.key[1])
        self.turns += 1
        self.most_waiting = max(self.most_waiting, self._engine.statistics().waiting)
        return await self._engine.sample(request)

    def release(self, session: str) -> None:
        self._engine.release(session)

    def abort(self, session: str) -> None:
        self._engine.abort(session)


class GoesOn:
    """An environment that says the same again and again."""

    async def reset(self, task: Task, key: tuple[int, int, int, int]) -> Opening:
        return Opening((Message("user", task.prompt),))

    async def step(self, message: Message) -> Reply:
        await asyncio.sleep(0.001)
        return Reply((Message("user", "so"),))

    async def score(self) -> None: ...

    async def close(self) -> None: ...


def evaluated(
    config: Any, parts: Parts, engine: EngineConfig, folder: Path, sampling: SamplingConfig, loads: int = 0
) -> tuple[Summary, Asked, list[Slice]]:
    """Sixteen episodes at once over a real engine, with new weights meanwhile; the report, who asked, and the trace."""
    opened = Engine(parts.model, engine, decode=parts.chat.decode)
    asked = Asked(opened)
    settings = config().evaluate.model_copy(update={"max_concurrency": 16, "sampling": sampling})
    conversation = replace(parts, engine=asked, agent=ModelAgent(), make_env=on_loop(lambda task: GoesOn()))
    graph = evaluate(settings, conversation, Scores(16))

    async def load() -> None:
        for version in range(1, loads + 1):
            await opened.load(Weights(nnx.state(parts.model, nnx.Param)), version)
        assert opened.statistics().version == loads

    async def main(recorder: PerfettoWriter) -> Summary:
        async with opened:
            work: list[Coroutine[Any, Any, Any]] = [Run(graph.build(quiet=True), recorder=recorder).finish(), load()]
            return (await asyncio.wait_for(asyncio.gather(*work), 60))[0]

    with PerfettoWriter(folder / "run.pftrace") as recorder:
        summary = asyncio.run(main(recorder))
    return summary, asked, list(read_trace(folder / "run.pftrace").slices)


@pytest.mark.slow
def test_overload_of_a_real_engine_is_pool_wait_in_the_report_and_in_the_trace_and_keeps_the_order(
    config: Any, parts: Parts, tmp_path: Path
) -> None:
    """A turn each over two slots: three are let in at first, so up to thirteen wait for a unit, once each.

    Of turns of one length they would wait twice as long as they are in work, a wait for a slot included; beside others less.
    """
    summary, asked, slices = evaluated(config, parts, TWO, tmp_path, SamplingConfig(max_tokens_per_turn=40, max_turns=1))
    assert summary.nodes["episodes"].shares["pool"] > summary.nodes["episodes"].shares["work"] / 4 > 0
    waits = [one for one in slices if one.name == "wait for pool"]
    assert len(waits) >= 8
    assert {one.args["for"] for one in waits} == {"engine"}
    assert sorted(asked.births) == list(range(16))
    # The three that are let in together may be set up in any order.
    assert all(abs(birth - place) < 3 for place, birth in enumerate(asked.births)), asked.births
    assert asked.most_waiting <= TWO.turns - TWO.slots


@pytest.mark.slow
@pytest.mark.parametrize(("which", "loads"), [("never", 0), ("never, kept", 0), ("episode", 3), ("episode, never", 3)])
def test_overload_of_a_real_engine_ends_where_sessions_wait_for_each_other(
    which: str, loads: int, config: Any, parts: Parts, tmp_path: Path
) -> None:
    """Conversations of three turns, most of which end at a character and so come back; and weights that wait for them."""
    sampling = SamplingConfig(max_tokens_per_turn=8, max_turns=3, stop_strings=tuple("0123456789aeiou"))
    summary, asked, _ = evaluated(config, parts, CROWDED[which], tmp_path, sampling, loads)
    assert summary.status == "completed"
    assert sorted(asked.births) == list(range(16))  # two that begin together may be set up in either order
    assert asked.turns > 32
    if "sessions" in engine_pools(CROWDED[which]).sizes:
        assert summary.nodes["episodes"].shares["pool"] > 0
