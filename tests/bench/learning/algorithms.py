"""Does every algorithm learn? Each on the calculator task, from the same warm start, over several seeds; writes the table.

For each seed one supervised warm start is shared. Each algorithm then trains from it as ``headrace run calculator --algorithm
NAME`` does, and is scored on held-out questions; ``sft`` and ``dpo`` train on demonstrations and preferences of the same task;
``distill`` has the policy that ``sft`` gave as its teacher. The table goes between the marks in docs/algorithms.md.
"""

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import nnx
from rich.progress import Progress

from flow import Run
from graphs.algorithms import ALGORITHMS
from graphs.calculator import CalculatorConfig, calculator
from graphs.commands.compiled import keep_compiled
from graphs.dpo import DpoConfig
from graphs.parts import Parts
from graphs.program import Phase, evaluation, preferring, supervised, training
from graphs.rl_config import RlConfig
from graphs.teacher import Teacher
from stages.tasks.arithmetic import DEMONSTRATIONS, ArithmeticConfig, demonstrations, preferences
from stages.tasks.examples import read_examples
from stages.train.config import TrainerConfig

PAGE = Path(__file__).parents[3] / "docs" / "algorithms.md"
MARKS = "<!-- table of results -->", "<!-- end of results -->"
SFT, DPO = "sft", "dpo"
NUM_TASKS = 1024
"""Held-out questions of a score: one standard error is at most 0.016."""


def settings(seed: int, steps: int | None) -> CalculatorConfig:
    """The demonstration with everything that is drawn drawn anew."""
    config = CalculatorConfig(seed=seed)
    sampling = config.rl.sampling.model_copy(update={"seed": 1000 + seed})
    changes: dict[str, Any] = {"seed": seed, "sampling": sampling} | ({} if steps is None else {"steps": steps})
    short = config.warm_start.trainer.model_copy(update={"decay_steps": WARM_STEPS - 10})
    return config.model_copy(
        update={
            "warm_start": config.warm_start.model_copy(update={"seed": seed, "steps": WARM_STEPS, "trainer": short}),
            "evaluate": config.evaluate.model_copy(update={"num_tasks": NUM_TASKS}),
            "rl": config.rl.model_copy(update=changes),
        }
    )


def phase_of(name: str, config: CalculatorConfig, parts: Parts) -> Phase:
    """What an algorithm does after the warm start."""
    if name in ALGORITHMS:
        return training(tuned(name, ALGORITHMS[name].change(config.rl)), parts)
    arithmetic = ArithmeticConfig()
    trainer = TrainerConfig(row_length=128, learning_rate=1e-3, warmup_steps=3)
    if name == SFT:
        sft = config.warm_start.model_copy(update={"steps": config.rl.steps, "trainer": trainer})
        return supervised(sft, parts, demonstrations(arithmetic, 1, 1000, share_with_tool=1.0))
    dpo = DpoConfig(
        steps=config.rl.steps, pairs_per_step=32, seed=config.seed, trainer=trainer.model_copy(update={"learning_rate": 3e-4})
    )
    return preferring(dpo, parts, preferences(arithmetic, 2, 1000))


def tuned(name: str, config: RlConfig) -> RlConfig:
    """The one setting that depends on how large an algorithm's gradients are, since Adam's epsilon here is not small."""
    steady = {"learning_rate": RATES.get(name, RATE), "schedule": "constant", "decay_steps": None}
    return config.model_copy(update={"trainer": config.trainer.model_copy(update=steady)})


WARM_STEPS = 200
"""Steps of the warm start: fewer than in the demonstration, so that more is left to learn."""
RATE = 7e-4
RATES: Mapping[str, float] = {"dr_grpo": 3e-3, "rloo": 1.4e-3}
"""Learning rates of those whose gradients are smaller, without a deviation or divided by a longest episode, which Adam does not
make good with an epsilon as large as here. All are smaller than in the demonstration, and constant: the quick ones show."""


async def run(phase: Phase) -> Mapping[str, Any]:
    """One graph to its end."""
    await phase.prepare()
    await Run(phase.make(None).build(quiet=True)).finish()
    return phase.result()


async def score(config: CalculatorConfig, parts: Parts) -> float:
    """Held-out success of the weights as they are."""
    return float((await run(evaluation("heldout", config.evaluate, parts)))["heldout"])


def weights_of(parts: Parts) -> Any:
    return jax.tree.map(np.asarray, nnx.state(parts.model, nnx.Param))


async def one_seed(names: Sequence[str], seed: int, steps: int | None, tell: Any) -> dict[str, tuple[float, float, float]]:
    """(success before, after, seconds of training) by name."""
    config = settings(seed, steps)
    parts = calculator(config).parts
    assert parts is not None
    parts.load()
    found = {}
    async with parts.engine:
        await run(supervised(config.warm_start, parts, read_examples(DEMONSTRATIONS)))
        warm, taught = weights_of(parts), None
        before = await score(config, parts)
        for name in names:
            nnx.update(parts.model, jax.tree.map(jax.numpy.asarray, warm))
            mine = parts
            if name == "distill":
                mine = replace(parts, teacher=Teacher(with_weights(parts, taught)))
            begun = time.perf_counter()
            await run(phase_of(name, config, mine))
            seconds = time.perf_counter() - begun
            found[name] = (before, await score(config, parts), seconds)
            taught = weights_of(parts) if name == SFT else taught
            tell(name, found[name])
    return found


def with_weights(parts: Parts, weights: Any) -> Any:
    """Another model of the policy's shape."""
    teacher = nnx.clone(parts.model)
    nnx.update(teacher, jax.tree.map(jax.numpy.asarray, weights))
    return teacher


def table(found: Mapping[str, Sequence[tuple[float, float, float]]]) -> str:
    """Markdown: a row for each algorithm."""
    seeds = len(next(iter(found.values())))
    lines = ["| algorithm | before | " + " | ".join(f"seed {n}" for n in range(seeds)) + " | mean | spread |"]
    lines.append("|---" * (seeds + 4) + "|")
    for name, runs in found.items():
        after = [run[1] for run in runs]
        spread = f"{statistics.stdev(after):.3f}" if seeds > 1 else ""
        cells = [f"`{name}`", f"{statistics.mean(run[0] for run in runs):.3f}", *(f"{value:.3f}" for value in after)]
        lines.append("| " + " | ".join([*cells, f"{statistics.mean(after):.3f}", spread]) + " |")
    return "\n".join(lines)


def write(page: Path, text: str) -> None:
    """Put a table between the marks of a page."""
    before, rest = page.read_text().split(MARKS[0])
    page.write_text(before + MARKS[0] + "\n" + text + "\n" + MARKS[1] + rest.split(MARKS[1])[1])


def main() -> None:
    """Train, print the table, and with ``--write`` put it into the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="how many, from 0")
    parser.add_argument("--steps", type=int, help="optimizer steps of each algorithm; those of the demonstration if left out")
    parser.add_argument("--only", nargs="+", help="names of algorithms; all if left out")
    parser.add_argument("--write", action="store_true", help="write the table into docs/algorithms.md")
    given = parser.parse_args()
    keep_compiled()
    names = [SFT, DPO, *ALGORITHMS] if given.only is None else given.only
    if "distill" in names and SFT not in names:
        names = [SFT, *names]
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in names}
    with Progress() as progress:
        bar = progress.add_task("algorithms", total=given.seeds * len(names))
        for seed in range(given.seeds):

            def tell(name: str, got: tuple[float, float, float], seed: int = seed) -> None:
                progress.print(f"seed {seed} {name:<14} {got[0]:.3f} -> {got[1]:.3f} in {got[2]:.0f} s")
                progress.advance(bar)

            for name, got in asyncio.run(one_seed(names, seed, given.steps, tell)).items():
                found[name].append(got)
    text = table(found)
    print(text)
    if given.write:
        write(PAGE, text)
    gains = {name: statistics.mean(run[1] - run[0] for run in runs) for name, runs in found.items()}
    print(json.dumps({"bench": "algorithms", "ratios": {}, "targets": {}, "detail": {"gain": gains, "runs": found}}))


if __name__ == "__main__":
    main()
