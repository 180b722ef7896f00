"""Updates that must not be applied: told, left out or the end of the run, kept on disk, and repeated to the bit."""

from pathlib import Path

import jax.numpy as jnp
import msgspec
import numpy as np
import pytest

from stages.batches.pack import make_batch
from stages.losses.policy import PolicyLoss
from stages.losses.supervised import SupervisedLoss
from stages.records import Batch
from stages.train.bad_steps import BadStepError, BadSteps, exact, read_bad_step
from stages.train.config import TrainerConfig
from stages.train.norms import FEWEST, WINDOW, bound, no_norms, with_norm
from stages.train.replay import replay, report

pytestmark = pytest.mark.slow  # Each setting compiles once, about a second.


@pytest.fixture
def planted(batches) -> list[Batch]:
    """Groups of a step, of which one segment has an infinite advantage at one token."""
    step = batches([2, 3], seed=4)
    (broken,) = step[1].units[1]
    broken.advantages[4] = np.inf
    return step


def test_a_bad_step_is_kept_and_repeated_with_the_same_bits(train, batches, tiny, planted, tmp_path: Path):
    """The norm of the run, which leaves, and the token it came from; weights are those of the step, not the last."""
    ran = train([batches([3]), planted, batches([2], seed=1)], BadSteps(tmp_path / "bad-steps", 4))
    assert [row["skipped"] for row in ran.rows] == [None, "not_finite", None]
    (folder,) = (tmp_path / "bad-steps").iterdir()
    assert folder.name == "step-000002"
    assert ran.rows[1]["bad_steps"] == "bad-steps/step-000002"
    replayed = replay(tiny(7), PolicyLoss(), folder)
    assert not np.isfinite(replayed.grad_norm)
    assert (replayed.same_bits, replayed.same_platform) == (True, True)
    assert {name.split(":")[0] for name in replayed.not_finite} == {"embedding", "norm", "projection"}
    worst = replayed.worst[0]
    assert (worst.segment, worst.position) == ("1.1", 4)
    assert (worst.id, worst.advantage) == (planted[1].units[1][0].ids[4], np.inf)
    assert len({token.segment for token in replayed.worst}) == len(replayed.worst) == 5
    text = report(replayed)
    assert "step 2: not finite" in text
    assert "to the bit as in the run" in text
    assert "1.1, position 4" in text


@pytest.mark.parametrize("settings", [{}, {"num_epochs": 2, "num_minibatches": 2, "rows_per_microbatch": 1}])
def test_the_norm_of_an_explosion_is_repeated_to_the_bit(train, batches, tiny, tmp_path: Path, settings):
    """A finite number this time, in streamed and held steps, from bfloat16 weights; the loss too."""
    model = tiny(dtype=jnp.bfloat16)
    ran = train([batches([3, 4])], BadSteps(tmp_path / "bad-steps", 4), model=model, max_grad_norm_skip=1e-6, **settings)
    assert ran.rows[0]["updates"] == 0
    folders = sorted((tmp_path / "bad-steps").iterdir())
    assert len(folders) == ran.rows[0]["skipped_exploding"] == (4 if settings else 1)
    replayed = replay(tiny(7, dtype=jnp.bfloat16), PolicyLoss(), folders[-1] / "bad.json")
    assert replayed.same_bits
    assert replayed.loss == exact(replayed.facts.loss)
    assert replayed.grad_norm > 0
    assert (replayed.facts.reason, replayed.not_finite) == ("exploding", ())


def test_a_run_that_is_to_stop_says_step_norm_and_file(train, batches, planted, tmp_path: Path):
    """Without a folder there is no file to name."""
    with pytest.raises(BadStepError) as caught:
        train([batches([3]), planted], BadSteps(tmp_path / "bad-steps", 4), on_bad_step="stop")
    folder = tmp_path / "bad-steps" / "step-000002"
    for part in ("expected a finite loss and gradient, got loss -inf and norm", "in step 2", str(folder), "on_bad_step='skip'"):
        assert part in str(caught.value)
    assert read_bad_step(folder)[0].step == 2
    with pytest.raises(BadStepError, match=r"expected a gradient norm of at most 1e-06, got .* in step 1 of the trainer; look"):
        train([batches([3])], on_bad_step="stop", max_grad_norm_skip=1e-6)


def test_no_more_bad_steps_are_kept_than_wanted(train, batches, planted, tmp_path: Path):
    """The first ones: what comes later often follows from them."""
    train([planted] * 3, BadSteps(tmp_path / "bad-steps", 2))
    assert sorted(path.name for path in (tmp_path / "bad-steps").iterdir()) == ["step-000001", "step-000002"]
    train([planted], BadSteps(tmp_path / "none" / "bad-steps", 0))
    assert not (tmp_path / "none" / "bad-steps").exists()


def test_a_run_that_goes_on_before_a_bad_step_keeps_it_as_it_would_have(train, planted, tmp_path: Path):
    """S100: under the same name, which its row tells, and no more of them; those before stay."""
    folder, kept = tmp_path / "bad-steps", tmp_path / "kept"
    train([planted], BadSteps(folder, 2), until=kept)
    whole = train([planted, planted], BadSteps(folder, 2), since=kept)
    again = train([planted, planted], BadSteps(folder, 2), since=kept)
    assert sorted(path.name for path in folder.iterdir()) == ["step-000001", "step-000002"]
    assert [row["bad_steps"] for row in again.rows] == [row["bad_steps"] for row in whole.rows]
    assert [row["bad_steps"] for row in again.rows] == ["bad-steps/step-000002", None]


def test_a_norm_far_above_those_before_is_left_out(train, batches, flat, segment):
    """A spike after as many quiet steps as a median needs: the parameters stay, and the step after it trains again."""
    quiet = [batches([3], seed=seed) for seed in range(FEWEST)]
    random = np.random.default_rng(0)
    loud = msgspec.structs.replace(one := segment(random), advantages=one.advantages * 1e4)
    steps = [*quiet, [make_batch(0, [(loud,)])], batches([3], seed=99)]
    ran = train(steps, max_grad_norm_ratio=20.0)
    assert [row["skipped"] for row in ran.rows] == [None] * FEWEST + ["exploding", None]
    np.testing.assert_array_equal(flat(ran.published[-2]), flat(ran.published[-3]))
    assert ran.rows[-2]["grad_norm"] > 20 * np.median([row["grad_norm"] for row in ran.rows[:FEWEST]])


def test_the_window_of_norms_is_bounded_and_follows_a_lasting_rise():
    config = TrainerConfig(row_length=8, max_grad_norm_ratio=3.0)
    norms = no_norms()
    for _ in range(FEWEST - 1):
        norms = with_norm(norms, 1.0)
    assert bound(norms, config) == np.inf
    norms = with_norm(norms, 1.0)
    assert bound(norms, config) == 3.0
    assert bound(norms, config.model_copy(update={"max_grad_norm_skip": 2.0})) == 2.0
    for value in (np.nan, np.inf, 0.0):
        np.testing.assert_array_equal(with_norm(norms, value), norms)
    for _ in range(WINDOW // 2 + FEWEST):
        norms = with_norm(norms, 100.0)
    assert norms.shape == (WINDOW,)
    assert bound(norms, config) == 300.0


def test_a_resumed_run_judges_norms_and_counts_as_one_that_went_on(train, batches, flat, tmp_path: Path):
    """S100: the window of norms and the number of skipped updates are part of the state."""
    steps = [batches([3], seed=seed) for seed in range(FEWEST)]
    steps = [*steps, batches([0]), [batch_times(batch, 1e4) for batch in batches([2], seed=50)], batches([2], seed=51)]
    straight = train(steps, max_grad_norm_ratio=20.0)
    train(steps[:-2], until=tmp_path / "kept", max_grad_norm_ratio=20.0)
    resumed = train(steps[-2:], since=tmp_path / "kept", max_grad_norm_ratio=20.0)
    assert [row["skipped"] for row in resumed.rows] == ["exploding", None]
    for name in ("step", "loss", "grad_norm", "skipped_total"):
        assert [row[name] for row in resumed.rows] == [row[name] for row in straight.rows[-2:]]
    np.testing.assert_array_equal(flat(resumed.published[-1]), flat(straight.published[-1]))


def batch_times(batch: Batch, factor: float) -> Batch:
    units = tuple((msgspec.structs.replace(s, advantages=s.advantages * factor),) for s in batch.segments)
    return msgspec.structs.replace(batch, units=units)


def test_what_cannot_be_repeated_is_refused(train, tiny, planted, tmp_path: Path):
    with pytest.raises(LookupError, match=r"expected a bad step with a bad.json, got .*give a folder such as"):
        replay(tiny(), PolicyLoss(), tmp_path)
    train([planted], BadSteps(tmp_path / "bad-steps", 4))
    folder = tmp_path / "bad-steps" / "step-000001"
    with pytest.raises(ValueError, match=r"expected the loss of the run, \('PolicyLoss', .*got \('SupervisedLoss'"):
        replay(tiny(), SupervisedLoss(), folder)
    (folder / "bad.json").write_text("{}")
    with pytest.raises(ValueError, match=r"expected a bad step of this version in .*bad\.json"):
        replay(tiny(), PolicyLoss(), folder)
