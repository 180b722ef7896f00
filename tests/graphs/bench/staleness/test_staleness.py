"""The study at its smallest: what must hold at any speed, and that an interrupted one goes on."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from graphs.bench.staleness.closed_form import Rates
from graphs.bench.staleness.experiment import STALENESS, measured, wanted_of
from graphs.bench.staleness.kept import Kept
from graphs.bench.staleness.settings import CORRECTIONS, StalenessConfig, program_config, rl_config
from graphs.bench.staleness.told import findings, p99
from graphs.bench.staleness.trained import ScoreAt, Trained, Wanted


class Stopped(Exception):
    """The study was interrupted."""


@pytest.mark.soak
def test_an_interrupted_study_goes_on_and_says_what_holds_at_any_speed(tmp_path: Path):
    config = STALENESS.short.model_copy(update={"folder": tmp_path})
    alone, kept = config.model_copy(update={"pipelines": None}), {0: Kept(config, 0)}
    told: list[str] = []

    def stop_before_the_lag(done: int, total: int, what: str) -> None:
        told.append(what)
        if "max_lag 2" in what:
            raise Stopped

    with pytest.raises(Stopped):
        asyncio.run(measured(alone, stop_before_the_lag, kept))
    first = ["seed 0: the warm start", "seed 0, max_lag 0, clipped", "seed 0, max_lag 0, clipped, again"]
    assert told == [*first, "seed 0, max_lag 2, clipped"]
    told.clear()
    trainings, _, num_before = asyncio.run(measured(alone, lambda done, total, what: told.append(what), kept))
    assert (told, num_before) == ([first[0], "seed 0, max_lag 2, clipped", "seed 0, max_lag 2, decoupled"], 2)
    check(trainings, config)
    told.clear()
    found = STALENESS.run(config, lambda done, total, what: told.append(what))
    assert told == ["two pipelines by script"]
    assert list(tmp_path.iterdir()) == []
    holds = {claim.what: claim.holds for claim in found.claims}
    assert holds["max_lag=0, repeated: seeds whose parameters are the same to the bit after every step"]
    assert holds["versions by which the oldest group of all exceeds its max_lag"]
    assert [each["digest"] for each in found.detail["trainings"]] == [each.digests[-1] for each in trainings]


def check(trainings: Sequence[Trained], config: StalenessConfig) -> None:
    for each in trainings:
        assert [score.version for score in each.scores] == [0, 2, 4]
        seconds = [score.seconds for score in each.scores]
        assert seconds == sorted(seconds)
        assert seconds[-1] == pytest.approx(each.seconds)
        assert len(each.lags) == config.steps * config.groups_per_step
        assert all(lag <= number // config.groups_per_step for number, lag in enumerate(each.lags))
    strict, again, clipped, decoupled = trainings
    assert strict.digests == again.digests
    assert known(clipped.corrected) == []
    assert known(decoupled.corrected) != []
    # Of the same weights what is left is rounding; of older ones it is what the policy moved.
    assert max(known(strict.kl)) < 1e-6 < max(known(clipped.kl))


def known(values: Sequence[float | None]) -> list[float]:
    """Of the steps that had anything to train."""
    return [value for value in values if value is not None]


def test_what_two_trainings_share_is_all_but_bound_and_correction():
    config = StalenessConfig()
    base = program_config(config, 1).rl
    for name in CORRECTIONS:
        changed = rl_config(base, 4, name)
        assert changed.model_dump(exclude={"max_lag", "loss", "trainer"}) == base.model_dump(
            exclude={"max_lag", "loss", "trainer"}
        )
        rebuilt = type(changed).model_validate(changed.model_dump())
        assert rebuilt.trainer.num_minibatches == (2 if name == "decoupled" else 1)


def test_every_ticket_of_the_widest_bound_has_a_place_and_a_cache():
    config = StalenessConfig()
    program = program_config(config, 0)
    tickets = (max(config.max_lags) + 1) * config.groups_per_step
    assert program.rl.max_concurrency == tickets * program.rl.group_size
    assert program.engine.slots + program.engine.kept >= program.rl.max_concurrency


def test_with_no_lag_one_correction_is_trained_twice():
    wanted = list(wanted_of(StalenessConfig(), 3))
    assert wanted[:2] == [Wanted(3, 0, "clipped"), Wanted(3, 0, "clipped", again=True)]
    assert [(each.max_lag, each.correction) for each in wanted[2:]] == [(lag, n) for lag in (1, 2, 4, 8) for n in CORRECTIONS]
    assert len({each.name for each in wanted}) == len(wanted) == 26


def training(
    seed: int, max_lag: int, scores: Sequence[float], *, again: bool = False, digest: str = "a", s: float = 10.0
) -> Trained:
    """Two steps of one group, a score after each."""
    steps = len(scores) - 1
    return Trained(
        wanted=Wanted(seed, max_lag, "clipped", again), seconds=s,
        scores=[ScoreAt(at, s * at / steps, score, score, score) for at, score in enumerate(scores)],
        lags=[min(at, max_lag) for at in range(steps)], kl=[0.1] * steps, clipped=[0.0] * steps, corrected=[None] * steps,
        goodput=[1.0] * steps, digests=[digest] * steps, ratio=0.95, idle=0.5,
        rates=Rates(64, 8, 1, max_lag, 1.0), date="2020-01-01T00:00:00+00:00", load=0.0,
    )  # fmt: skip


CONFIG = StalenessConfig(seeds=(0, 1), max_lags=(0, 1), corrections=("clipped",), steps=2, groups_per_step=1, target=0.8)


def test_findings_are_means_over_the_seeds_and_their_least_and_most():
    found = [
        training(0, 0, (0.5, 0.7, 0.9)), training(0, 0, (0.5, 0.7, 0.9), again=True), training(0, 1, (0.5, 0.8, 0.6), s=5.0),
        training(1, 0, (0.5, 0.8, 0.7)), training(1, 0, (0.5, 0.8, 0.7), again=True), training(1, 1, (0.5, 0.6, 0.6), s=5.0),
    ]  # fmt: skip
    told = findings(CONFIG, found, {}, 0)
    strict, lagging = told.tables[0].rows
    assert (strict["final"], strict["least"], strict["most"]) == (pytest.approx(0.8), 0.7, 0.9)
    assert (strict["reached"], strict["to_target"]) == (2, pytest.approx(7.5))
    assert (lagging["reached"], lagging["to_target"]) == (1, None)
    assert lagging["rate"] == pytest.approx(24)
    values = {claim.what: claim.got for claim in told.claims}
    assert values["max_lag=1: times the steps of max_lag=0 in the same time"] == pytest.approx(2)
    assert values["mean lag of a training over that of the closed form, least of all"] == pytest.approx(1)
    assert "max_lag=0 is the first at a held-out score of 0.8, after 8 s." in told.answer
    assert "the worst, 0.60: means over 2 seeds." in told.answer
    over_time = told.plots[0]
    assert over_time.series[0].values[0] == pytest.approx(0.5)
    assert over_time.series[0].values[-1] == pytest.approx(0.8)
    assert (over_time.series[0].low[-1], over_time.series[0].high[-1]) == (0.7, 0.9)
    assert over_time.series[1].values[-1] is None


def test_a_repeated_training_with_other_bits_does_not_hold():
    found = [training(0, 0, (0.5, 0.7, 0.9)), training(0, 0, (0.5, 0.7, 0.9), again=True, digest="b")]
    claim = findings(CONFIG.model_copy(update={"max_lags": (0,)}), found, {}, 0).claims[0]
    assert (claim.got, claim.wanted, claim.holds) == (0, 1, False)


@pytest.mark.parametrize(("lags", "expected"), [([0] * 99 + [5], 0), ([0] * 98 + [5] * 2, 5), ([3], 3)])
def test_99_of_100_groups_do_not_exceed_the_p99(lags: list[int], expected: int):
    assert p99(lags) == expected
