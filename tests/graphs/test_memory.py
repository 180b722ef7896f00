"""What programs take of memory: worked out by hand from sizes, by the compiler, and refused where it cannot fit."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import jax
import pytest

from graphs.calculator import CalculatorConfig, calculator
from graphs.cli import main
from graphs.memory import Budget, check_memory, device_budget, memory_needs
from graphs.program import Program

SIZES = {"width": 8192, "num-layers": 80, "num-heads": 64, "num-kv-heads": 8, "head-size": 128, "mlp-width": 28672}
BIG = [part for name, size in SIZES.items() for part in (f"--model.{name}", str(size))]


def needs_of(program: Program, **options: Any) -> dict[str, int]:
    return {need.what.split(",")[0]: need.num_bytes for need in memory_needs(program, **options)}


def test_needs_are_those_worked_out_by_hand(config: Callable[..., CalculatorConfig]) -> None:
    """One layer: q, o 16 x 16 each, k, v 16 x 8 each, three matrices 16 x 32, two norms; embedding and last norm; 4 bytes."""
    settings = config()
    weights = 4 * (2 * 16 * 16 + 2 * 16 * 8 + 3 * 16 * 32 + 2 * 16 + settings.model.vocab_size * 16 + 16)
    needs = needs_of(calculator(settings))
    assert needs["weights"] == needs["the next weights"] == needs["gradient"] == weights
    assert needs["keys and values"] == 4 * 2 * 16 * 64 * 8
    # Two moments, and a count of the steps here and there.
    assert 2 * weights <= needs["optimizer state"] <= 2 * weights + 16


def test_an_optimizer_that_rests_in_the_hosts_memory_counts_for_the_update_alone(
    config: Callable[..., CalculatorConfig],
) -> None:
    """Where activations are unknown the update is the fullest moment; where they are larger, the state is not there."""
    settings = config()
    trainer = settings.rl.trainer.model_copy(update={"optimizer_memory": "host"})
    rl = settings.rl.model_copy(update={"trainer": trainer})
    warm = settings.warm_start.model_copy(update={"trainer": trainer})
    program = calculator(settings.model_copy(update={"rl": rl, "warm_start": warm}))
    resting, moved = needs_of(calculator(settings)), needs_of(program)
    assert sum(resting.values()) == sum(moved.values())
    assert list(moved)[-2:] == ["the next weights", "optimizer state"]


def test_kept_caches_count_as_slots_do(config: Callable[..., CalculatorConfig]) -> None:
    settings = config()
    kept = settings.model_copy(update={"engine": settings.engine.model_copy(update={"kept": 8})})
    without, beside = needs_of(calculator(settings)), needs_of(calculator(kept))
    assert beside["keys and values"] == without["keys and values"] * 24 // 16


def test_a_program_that_trains_nothing_needs_weights_and_cache_only(config: Callable[..., CalculatorConfig]) -> None:
    program = calculator(config())
    assert list(needs_of(dataclasses.replace(program, phases=program.phases[1:2]))) == ["weights", "keys and values"]


@pytest.mark.slow
def test_activations_come_from_the_compiler_and_hold_the_logits_at_least(config: Callable[..., CalculatorConfig]) -> None:
    """Logits of a micro-batch and their gradient are alive together, in float32, whatever the compiler makes of the rest."""
    settings = config()
    needs = needs_of(calculator(settings), compiled=True)
    assert needs["activations"] >= 2 * 4 * 4 * 64 * settings.model.vocab_size


def test_what_cannot_fit_is_refused_with_the_table_and_what_just_fits_is_not(config: Callable[..., CalculatorConfig]) -> None:
    program = calculator(config())
    total = sum(need.num_bytes for need in memory_needs(program))
    assert "at once" in check_memory(program, Budget("toy", total))
    with pytest.raises(ValueError, match=r"expected a program that fits a device's memory of .*, toy; got one that") as refused:
        check_memory(program, Budget("toy", total - 1))
    for part in ("weights", "keys and values, 16 x 64 tokens", "optimizer state", "in calculator", "take a smaller model"):
        assert part in str(refused.value), part


def test_the_budget_is_that_of_one_device() -> None:
    budget = device_budget()
    assert budget.device.endswith("(cpu)")
    with open("/proc/meminfo") as lines:
        total = int(next(line for line in lines if line.startswith("MemTotal")).split()[1]) * 1024
    assert budget.num_bytes == pytest.approx(total / jax.local_device_count(), rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["check", "run"])
def test_a_model_of_70_billion_parameters_is_refused_at_once(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    began = time.process_time()
    with pytest.raises(SystemExit) as ended:
        main([command, "calculator", *BIG])
    assert time.process_time() - began < 10
    assert ended.value.code == 2
    assert "weights                             255.01 GiB" in capsys.readouterr().err
