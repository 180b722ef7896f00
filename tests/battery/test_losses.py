"""What every loss must pass, over configured losses as presets use them. Formulas are for tests/stages/losses."""

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphs.algorithms import ALGORITHMS
from graphs.rl_config import RlConfig
from stages.losses.policy import PolicyLoss
from stages.losses.preference import PreferenceLoss
from stages.losses.supervised import SupervisedLoss
from stages.losses.tokens import Loss, Tokens

ROWS, LENGTH = 12, 24
"""One shape for every layout of the segments, so that an operation compiles once for all losses: they run without jit."""
NUM_UNITS = 6
FLOATS = tuple(name for name in Tokens._fields if name not in ("mask", "segments"))
DIFFERENTIATED = ("logprobs", "entropy", "values")

LOSSES: dict[str, Loss] = {
    **{name: algorithm.change(RlConfig()).loss for name, algorithm in ALGORITHMS.items()},
    "grpo_kl": PolicyLoss(aggregation="sequence", kl_coefficient=0.04),
    "gspo_wide": PolicyLoss(ratio="sequence", clip_low=0.1, clip_high=0.2, aggregation="sequence"),
    "gspo_token": PolicyLoss(ratio="sequence_token", clip_low=0.1, clip_high=0.2, aggregation="sequence"),
    "cispo_low": PolicyLoss(objective="cispo", clip_high=0.5),
    "dual_clip": PolicyLoss(dual_clip=1.5),
    "ppo_entropy": PolicyLoss(entropy_coefficient=0.01, value_coefficient=0.5, value_clip=0.2),
    "kl_k1": PolicyLoss(kl_coefficient=0.1, kl_estimator="k1"),
    "kl_k2": PolicyLoss(kl_coefficient=0.1, kl_estimator="k2"),
    "uncorrected": PolicyLoss(against="proximal"),
    "decoupled": PolicyLoss(against="proximal", correction="truncated", correction_cap=None),
    "truncated": PolicyLoss(against="proximal", correction="truncated", correction_cap=1.2),
    "masked": PolicyLoss(correction="masked", correction_floor=0.7, correction_cap=1.4),
    "masked_geometric": PolicyLoss(
        ratio="sequence", against="proximal", correction="masked", correction_level="geometric", correction_floor=0.9,
        correction_cap=1.2,
    ),
    "sft": SupervisedLoss(),
    "dpo": PreferenceLoss(),
    "cdpo": PreferenceLoss(beta=0.5, label_smoothing=0.1),
    "ipo": PreferenceLoss(kind="ipo"),
}  # fmt: skip
"""Those of the algorithms by name, of which many are one, and others for what these do not use."""
LOSSES = {name: loss for name, loss in LOSSES.items() if name == next(n for n, same in LOSSES.items() if same == loss)}

each_loss = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
pytestmark = pytest.mark.slow  # The first test of a loss compiles its operations.

HASTY = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}

Piece = dict[str, np.ndarray]
Unit = tuple[Piece, ...]
Place = tuple[int, slice]


@pytest.fixture(autouse=True)
def strict_arithmetic() -> Iterator[None]:
    with jax.numpy_dtype_promotion("strict"):
        yield


def piece(random: np.random.Generator, side: float | None) -> Piece:
    """A segment, stale and with targets between other tokens; ``side`` is the advantage of a reply of a pair."""
    length = int(random.integers(2, 5))
    behaviour = -random.exponential(1.0, length)
    mask = random.random(length) < 0.7
    mask[-1] = True
    return {
        "mask": mask,
        "behaviour": behaviour,
        "logprobs": behaviour + 0.4 * random.normal(size=length),
        "proximal": behaviour + 0.3 * random.normal(size=length),
        "reference": behaviour + 0.5 * random.normal(size=length),
        "entropy": random.uniform(0.1, 2.0, length),
        "weights": np.full(length, 1.0 if side else random.uniform(0.2, 1.0)),
        "advantages": np.full(length, side) if side else random.normal(size=length),
        "values": random.normal(size=length),
        "old_values": random.normal(size=length),
        "returns": random.normal(size=length),
    }


def units_of(loss: Loss, seed: int) -> list[Unit]:
    """Segments that must share a row, together."""
    random = np.random.default_rng(seed)
    if loss.needs.aggregation == "pair":
        return [(piece(random, 1.0), piece(random, -1.0)) for _ in range(NUM_UNITS)]
    return [(piece(random, None),) for _ in range(2 * NUM_UNITS)]


def lay(rows: Sequence[Sequence[Unit]], fill: float = 0.0, dtype: Any = np.float32) -> tuple[Tokens, dict[int, Place]]:
    """Units in rows, ``fill`` wherever there is no target, and where each piece lies by its ``id``."""
    arrays: dict[str, Any] = {name: np.full((ROWS, LENGTH), fill, dtype) for name in FLOATS}
    arrays |= {"mask": np.zeros((ROWS, LENGTH), bool), "segments": np.zeros((ROWS, LENGTH), np.int32)}
    places: dict[int, Place] = {}
    for row, units in enumerate(rows):
        start = 0
        for number, each in enumerate((each for unit in units for each in unit), start=1):
            span = slice(start, start := start + len(each["mask"]))
            arrays["segments"][row, span] = number
            arrays["mask"][row, span] = each["mask"]
            for name in FLOATS:
                arrays[name][row, span] = np.where(each["mask"], each[name], fill)
            places[id(each)] = row, span
    return Tokens(**{name: jnp.asarray(array) for name, array in arrays.items()}), places


def alone(units: Sequence[Unit]) -> list[list[Unit]]:
    return [[unit] for unit in units]


def packed(units: Sequence[Unit]) -> list[list[Unit]]:
    """As many as are sure to have room, row after row."""
    num = LENGTH // (4 * len(units[0]))
    return [list(units[first : first + num]) for first in range(0, len(units), num)]


def is_smooth(loss: Loss) -> bool:
    """Whether the gradient is that of the value: no part of it is held still."""
    held = isinstance(loss, PolicyLoss) and (loss.objective == "cispo" or loss.ratio == "sequence_token")
    return not held and not (isinstance(loss, PolicyLoss) and loss.kl_coefficient and loss.kl_estimator == "k1")


SMOOTH = {name: loss for name, loss in LOSSES.items() if is_smooth(loss)}


def total(loss: Loss, tokens: Tokens, varied: dict[str, jax.Array]) -> tuple[jax.Array, Any]:
    return loss(tokens._replace(**varied))


def evaluated(loss: Loss, tokens: Tokens) -> tuple[Any, Any, dict[str, np.ndarray]]:
    """(total, sums, gradients with respect to everything that depends on parameters), on the host."""
    return jax.device_get(evaluated_inside(loss, tokens))


def evaluated_inside(loss: Loss, tokens: Tokens) -> tuple[Any, Any, dict[str, jax.Array]]:
    varied = {name: array for name in DIFFERENTIATED if (array := getattr(tokens, name)) is not None}
    (value, sums), gradients = jax.value_and_grad(functools.partial(total, loss), argnums=1, has_aux=True)(tokens, varied)
    return value, sums, gradients


def assert_equal(found: Any, expected: Any, **tolerance: float) -> None:
    jax.tree.map(functools.partial(np.testing.assert_allclose, **({"rtol": 2e-5, "atol": 2e-5} | tolerance)), found, expected)


def is_finite(found: Any) -> bool:
    return all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(found))


@each_loss
def test_what_is_no_target_matters_to_nothing(loss):
    """S75: whatever stands outside the mask, NaN too, value, sums and gradients are the same to the bit."""
    units = units_of(loss, 0)
    clean, _ = lay(packed(units))
    expected = evaluated(loss, clean)
    assert is_finite(expected)
    for poison in (np.nan, -np.inf):
        poisoned, _ = lay(packed(units), poison)
        found = evaluated(loss, poisoned)
        assert_equal(found, expected, rtol=0, atol=0)
        assert not any(gradient[~np.asarray(clean.mask)].any() for gradient in found[2].values())


@each_loss
def test_without_any_target_everything_is_zero(loss):
    """S76: nothing is divided here, so there is no 0 / 0."""
    tokens, _ = lay(packed(units_of(loss, 1)))
    value, sums, gradients = evaluated(loss, tokens._replace(mask=jnp.zeros_like(tokens.mask)))
    assert value == 0
    assert not any(sums.values())
    assert not any(gradient.any() for gradient in gradients.values())


@each_loss
def test_a_loss_is_silent_at_zero_advantage_exactly_if_it_says_so(loss):
    """Pack leaves such segments out on the strength of ``needs.silent``."""
    tokens, _ = lay(packed(units_of(loss, 2)))
    _, _, gradients = evaluated(loss, tokens._replace(advantages=jnp.zeros_like(tokens.advantages)))
    assert any(gradient.any() for gradient in gradients.values()) == loss.needs.silent


@each_loss
def test_however_segments_lie_in_rows_value_sums_and_gradients_are_the_same(loss):
    """S73: rows and segments in any order, packed or each in a row of its own, and any padding behind them."""
    units = units_of(loss, 3)
    tokens, places = lay(alone(units))
    value, sums, gradients = evaluated(loss, tokens)

    @settings(max_examples=5)
    @given(st.permutations(range(len(units))), st.permutations(range(ROWS)))
    def check(order: list[int], row_order: list[int]) -> None:
        rows = packed([units[index] for index in order])
        rows += [[] for _ in range(ROWS - len(rows))]
        moved, at = lay([rows[row] for row in row_order])
        found, found_sums, found_gradients = evaluated(loss, moved)
        assert_equal((found, found_sums), (value, sums))
        for each in (each for unit in units for each in unit):
            for name, gradient in gradients.items():
                assert_equal(found_gradients[name][at[id(each)]], gradient[places[id(each)]])

    check()


@each_loss
def test_micro_batches_add_up_to_the_whole(loss):
    units = units_of(loss, 4)
    whole = evaluated(loss, lay(packed(units))[0])[:2]
    for cut in (1, len(units) // 2):
        parts = [evaluated(loss, lay(packed(part))[0])[:2] for part in (units[:cut], units[cut:])]
        assert_equal(jax.tree.map(np.add, *parts), whole)


@each_loss
def test_compiled_and_not_compiled_agree(loss):
    tokens, _ = lay(packed(units_of(loss, 5)))
    # What it is compiled to is not at issue: as fast as XLA can.
    compiled = jax.jit(functools.partial(evaluated_inside, loss), compiler_options=HASTY)
    assert_equal(jax.device_get(compiled(tokens)), evaluated(loss, tokens))


@pytest.mark.parametrize("loss", SMOOTH.values(), ids=SMOOTH.keys())
def test_the_gradient_is_that_of_the_value(loss):
    """In float64, against the central difference along a random direction through all that depends on parameters at once."""
    random = np.random.default_rng(6)
    with jax.enable_x64(True):
        tokens, _ = lay(packed(units_of(loss, 6)), dtype=np.float64)
        varied = {name: getattr(tokens, name) for name in DIFFERENTIATED}
        gradients = jax.grad(lambda point: total(loss, tokens, point)[0])(varied)
        way = {name: random.normal(size=(ROWS, LENGTH)) for name in varied}
        ahead, behind = (
            float(total(loss, tokens, {name: varied[name] + step * way[name] for name in varied})[0]) for step in (1e-6, -1e-6)
        )
        along = sum(float(np.vdot(gradients[name], way[name])) for name in varied)
    assert along == pytest.approx((ahead - behind) / 2e-6, rel=1e-6, abs=1e-7)


@each_loss
def test_extreme_log_ratios_leave_everything_finite(loss):
    random = np.random.default_rng(7)
    tokens, _ = lay(packed(units_of(loss, 7)))
    for size in (30.0, 500.0):
        names = ("logprobs", "behaviour", "proximal", "reference")
        far = {name: jnp.asarray(-size * random.integers(0, 2, (ROWS, LENGTH)), jnp.float32) for name in names}
        assert is_finite(evaluated(loss, tokens._replace(**far)))


@each_loss
def test_a_loss_reads_no_more_than_it_says(loss):
    needs = loss.needs
    tokens, _ = lay(packed(units_of(loss, 8)))
    absent: dict[str, Any] = {} if needs.reference else {"reference": None}
    absent |= {} if needs.critic else dict.fromkeys(("values", "old_values", "returns"))
    absent |= {} if needs.proximal else {"proximal": None}
    absent |= {} if needs.behaviour else {"behaviour": jnp.full_like(tokens.behaviour, jnp.nan)}
    value, sums, gradients = evaluated(loss, tokens)
    found, found_sums, found_gradients = evaluated(loss, tokens._replace(**absent))
    assert_equal((found, found_sums), (value, sums), rtol=0, atol=0)
    assert_equal(found_gradients, {name: gradients[name] for name in found_gradients}, rtol=0, atol=0)


@each_loss
def test_a_loss_that_asks_for_an_array_says_so_where_it_is_missing(loss):
    tokens, _ = lay(packed(units_of(loss, 8)))
    for asked, name in ((loss.needs.reference, "reference"), *((loss.needs.critic, n) for n in ("values", "returns"))):
        if asked:
            with pytest.raises(ValueError, match=rf"expected Tokens\.{name}, got None"):
                loss(tokens._replace(**{name: None}))


@each_loss
def test_a_loss_looks_after_stale_tokens_exactly_if_it_says_so(loss):
    """In a step of one update, tokens that were sampled by very other weights change the gradient, or do not."""
    tokens, _ = lay(packed(units_of(loss, 9)))
    tokens = tokens._replace(proximal=None)
    stale = tokens._replace(behaviour=tokens.logprobs - 1.5 * jnp.sign(tokens.advantages))
    fresh = evaluated(loss, tokens._replace(behaviour=tokens.logprobs))[2]["logprobs"]
    assert bool(np.any(evaluated(loss, stale)[2]["logprobs"] != fresh)) == loss.needs.stale


@each_loss
def test_without_proximal_ones_the_log_probabilities_of_now_stand_for_them(loss):
    tokens, _ = lay(packed(units_of(loss, 10)))
    expected = evaluated(loss, tokens._replace(proximal=tokens.logprobs))
    assert_equal(evaluated(loss, tokens._replace(proximal=None)), expected, rtol=0, atol=1e-6)


@each_loss
def test_equal_settings_are_one_loss(loss):
    """So they compile once."""
    again = type(loss).model_validate(loss.model_dump())
    assert again == loss
    assert hash(again) == hash(loss)
