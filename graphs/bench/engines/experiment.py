"""The experiment ``engines``: the same seed, prompts and weights over every policy engine on this machine."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from pydantic import BaseModel, ConfigDict, Field

from graphs.bench.engines.compared import Compared, compared, num_changed, num_sampled, same_bits
from graphs.bench.engines.makers import ENGINES, AbsentError, Ground, Kind
from graphs.bench.engines.talks import Candidate, Talk, Turns, held, talks_of
from graphs.bench.experiment import Claim, Column, Experiment, Findings, Table, Tell
from graphs.bench.plain import PlainForward
from graphs.bench.small import MODEL, SMALL
from graphs.calculator import CalculatorConfig, calculator
from graphs.parts import Parts
from stages.models.config import ModelConfig
from stages.models.transformer import Transformer
from stages.records import Weights


class EnginesConfig(BaseModel):
    """What the engines are asked."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: ModelConfig = CalculatorConfig().model
    """Shape of the model, that of the calculator; its parameters are drawn at random, twice."""
    num_talks: int = Field(default=32, ge=2)
    """Conversations of two turns; every second one is greedy."""
    max_tokens: int = Field(default=16, ge=1)
    """Most tokens of a turn."""
    rounds: int = Field(default=2, ge=1)
    """Times that all talks are held to measure the rate, of which the best counts."""
    llama_server: Path = Path(".cache/peers/build/bin/llama-server")
    """Program of llama.cpp's server, which ``make bench-peers`` builds. It is left out where it is not there."""


@dataclass
class Seen:
    """What was seen of an engine.

    Attributes:
        kind: the engine.
        talks: that it was asked.
        first: turns under the first weights.
        swapped: turns under the second.
        versions: of all tokens, under the first weights and under the second.
        again: turns under the first weights once more, one talk at a time, in another order; ``None`` where talks are never
            held together.
        rate: best of the rounds, in tokens a second.
    """

    kind: Kind
    talks: Sequence[Talk]
    first: list[Turns] = field(default_factory=list[Turns])
    swapped: list[Turns] = field(default_factory=list[Turns])
    versions: tuple[set[int], set[int]] = field(default_factory=lambda: (set[int](), set[int]()))
    again: list[Turns] | None = None
    rate: float = 0.0


def run(config: EnginesConfig, tell: Tell) -> Findings:
    """Ask every engine."""
    parts = _parts(config)
    talks = talks_of(parts, config.num_talks, config.max_tokens)
    weights = [Weights(_parameters(config.model, seed)) for seed in (0, 1)]
    seen: list[Seen] = []
    absent: dict[str, str] = {}
    for number, kind in enumerate(ENGINES):
        tell(number, len(ENGINES), kind.name)
        try:
            seen.append(asyncio.run(_asked(kind, Ground(parts, config.llama_server), talks, weights, config.rounds)))
        except AbsentError as error:
            absent[kind.name] = str(error)
    forward = PlainForward(parts.model, parts.engine.context_length)
    found = [_judged(each, seen[0], forward, weights) for each in seen]
    claims = [claim for each, of in zip(seen, found, strict=True) for claim in _claims(each, seen[0], of)]
    return Findings(
        answer=_answer(seen, found, absent), claims=claims, tables=[_equality(seen, found), _speed(seen, absent)],
        notes=_notes(config, absent), detail={"absent": absent},
    )  # fmt: skip


async def _asked(kind: Kind, ground: Ground, talks: Sequence[Talk], weights: Sequence[Weights], rounds: int) -> Seen:
    """All that is asked of one engine, in the order that needs the fewest loads."""
    seen = Seen(kind, [talk for talk in talks if kind.draws or talk.greedy])
    async with kind.make(ground) as engine:
        await engine.load(weights[0], 1)
        seen.first = await _all(engine, seen, "first")
        await engine.load(weights[1], 2)
        seen.swapped = await _all(engine, seen, "swapped")
        seen.versions = (_versions(seen.first), _versions(seen.swapped))
        await engine.load(weights[0], 3)
        if kind.together:
            seen.again = [await held(engine, talk, "again") for talk in reversed(seen.talks)][::-1]
        for number in range(rounds):
            begun = time.perf_counter()
            turns = await _all(engine, seen, f"round{number}")
            seen.rate = max(seen.rate, num_sampled(turns) / (time.perf_counter() - begun))
    return seen


async def _all(engine: Candidate, seen: Seen, name: str) -> list[Turns]:
    if not seen.kind.together:
        return [await held(engine, talk, name) for talk in seen.talks]
    return list(await asyncio.gather(*(held(engine, talk, name) for talk in seen.talks)))


def _judged(seen: Seen, plain: Seen, forward: PlainForward, weights: Sequence[Weights]) -> tuple[Compared, Compared]:
    """An engine beside the plain forward pass, under the first weights and under the second."""
    places = [at for at, talk in enumerate(plain.talks) if talk in seen.talks]
    found: list[Compared] = []
    for held_by, got, under in ((plain.first, seen.first, weights[0]), (plain.swapped, seen.swapped, weights[1])):
        forward.put(under.parameters)
        found.append(compared(seen.talks, [held_by[at] for at in places], got, forward, seen.kind.tolerance))
    return found[0], found[1]


def _claims(seen: Seen, plain: Seen, found: tuple[Compared, Compared]) -> list[Claim]:
    name, tolerance = seen.kind.name, seen.kind.tolerance
    swap = [
        Claim(f"{name}: talks that went otherwise under the new weights", num_changed(seen.first, seen.swapped), 1),
        Claim(f"{name}: versions its tokens carry", f"{seen.versions}", "({1}, {2})", "equal"),
    ]
    if seen is plain:
        return swap
    different, stops = (sum(getattr(each, what) for each in found) for what in ("different", "stops"))
    largest = max(each.largest for each in found)
    claims = [
        Claim(f"{name}: tokens that are not those of the plain forward pass", different, 0, "equal"),
        Claim(f"{name}: turns that ended for another reason", stops, 0, "equal"),
        Claim(f"{name}: largest difference of log-probabilities, nats", largest, tolerance, "most"),
        *swap,
    ]
    if seen.kind.draws and seen.again is not None:
        bits = same_bits(seen.first, seen.again)
        claims.append(
            Claim(f"{name}: all talks at once and one by one in another order, equal to the bit", bits, True, "equal")
        )
    return claims


def _answer(seen: Sequence[Seen], found: Sequence[tuple[Compared, Compared]], absent: dict[str, str]) -> str:
    tokens, different = (sum(getattr(each, what) for pair in found[1:] for each in pair) for what in ("tokens", "different"))
    ties = sum(each.ties for pair in found for each in pair)
    largest = max(each.largest for pair, one in zip(found, seen, strict=True) if one.kind.draws for each in pair)
    fastest = max(seen, key=lambda each: each.rate)
    missing = f" Not on this machine: {', '.join(absent)}." if absent else ""
    tied = f", {ties} of them ties that rounding decides" if ties else ""
    return (
        f"{len(seen) - 1} engines were compared with a forward pass without caches under two sets of weights: of {tokens} "
        f"tokens {different} differ{tied}, and ours is off by at most {largest:.1e} nats. The fastest, {fastest.kind.name}, "
        f"makes {fastest.rate:,.0f} tokens a second.{missing}"
    )  # fmt: skip


def _equality(seen: Sequence[Seen], found: Sequence[tuple[Compared, Compared]]) -> Table:
    rows: list[dict[str, Any]] = []
    for each, pair in zip(seen, found, strict=True):
        for weights, of in zip(("first", "after the sync"), pair, strict=True):
            row = {
                "engine": each.kind.name, "weights": weights, "talks": of.talks, "tokens": of.tokens, "ties": of.ties,
                "different": of.different, "stops": of.stops, "largest": of.largest,
                "changed": num_changed(each.first, each.swapped) if weights != "first" else None,
                "bits": None if each.again is None or weights != "first" else same_bits(each.first, each.again),
            }  # fmt: skip
            rows.append(row)
    columns = [
        Column("engine", "engine"), Column("weights", "weights"), Column("talks", "talks"), Column("tokens", "tokens compared"),
        Column("ties", "ties"), Column("different", "different"), Column("stops", "other stop"),
        Column("largest", "log-probabilities off by", "nats", 2), Column("changed", "talks the sync changed"),
        Column("bits", "one by one: same bits"),
    ]  # fmt: skip
    note = (
        "ties: greedy tokens that differ where both are as likely within the tolerance. The engines of other shapes round "
        "otherwise; within one shape no bit depends on who else is there"
    )
    return Table("each engine beside the plain forward pass", columns, rows, note)


def _speed(seen: Sequence[Seen], absent: dict[str, str]) -> Table:
    base = seen[0].rate
    rows: list[dict[str, Any]] = [
        {
            "engine": each.kind.name, "talks": len(each.talks), "tokens": num_sampled(each.first), "rate": each.rate,
            "ratio": each.rate / base,
        }
        for each in seen
    ]  # fmt: skip
    rows += [{"engine": name, "talks": f"absent: {why}"} for name, why in absent.items()]
    columns = [
        Column("engine", "engine"), Column("talks", "talks"), Column("tokens", "tokens sampled"),
        Column("rate", "rate", "tokens/s"), Column("ratio", "times the plain pass"),
    ]  # fmt: skip
    return Table("speed, all talks at once, the plain forward pass one after the other", columns, rows)


def _notes(config: EnginesConfig, absent: dict[str, str]) -> list[str]:
    rows = [
        "The plain forward pass reads the whole context for each token, without cache, slots or neighbours; it shares "
        "the model's code and the rule of the draw with the engine, so what it finds are faults of caches, batching and swaps.",
        "llama.cpp shares no code with us. It is asked for the most likely tokens only, since it draws otherwise, and gets new "
        "weights as a file with which it is started anew. Its flash attention rounds coarsely (4e-3 nats here) and is off.",
        "Half of the talks are greedy; the others are drawn at temperatures 1 and 0.7, truncated, or end on strings. Each has "
        "two turns, so that a cache is gone on with.",
        f"A model of {config.model.num_layers} layers and width {config.model.width} with random weights: rates of small "
        "models on few cores measure overhead; the ratio to peers on a real model is another comparison (make bench-peers).",
        "A draw that is a close call may fall otherwise on a machine that rounds otherwise; the claims say that none did here.",
    ]
    return rows + [f"{name} is absent: {why}" for name, why in absent.items()]


def _parts(config: EnginesConfig) -> Parts:
    """Chat, tasks and shapes of the calculator, its model loaded."""
    shaped = CalculatorConfig(num_train_tasks=config.num_talks, model=config.model, engine=SMALL.engine)
    parts = calculator(shaped).parts
    assert parts is not None
    parts.load()
    return parts


def _parameters(config: ModelConfig, seed: int) -> Any:
    return jax.tree.map(jnp.array, nnx.state(Transformer(config, nnx.Rngs(seed)), nnx.Param))


def _versions(turns: Sequence[Turns]) -> set[int]:
    return {int(version) for of_talk in turns for sample in of_talk for version in sample.versions}


ENGINES_EXPERIMENT = Experiment(
    name="engines",
    title="Engines: the same seed, prompts and weights over each",
    question=(
        "Do all engines that a policy can run on say the same? Talks of two turns are held with the engine in several compiled "
        "shapes, with a forward pass that caches nothing, and with llama.cpp's server where it was built: tokens, stop reasons "
        "and log-probabilities are compared under one set of weights and, after a weight sync, under another, which must be "
        "what is sampled from at once. Then each is timed."
    ),
    config=EnginesConfig,
    short=EnginesConfig(model=MODEL, num_talks=10, max_tokens=8, rounds=1),
    run=run,
)
