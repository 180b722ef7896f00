"""Tokens a second of one GRPO update against TRL on torch and tunix on JAX: same model, sequences, loss, optimizer and machine.

Each system makes the update of each setting of the sweep (``train_workload.py``) in a process of its own, a peer in the
better of two sizes of micro-batch; then all take turns. Tokens are those of prompts and completions, however many places a
system fills up with padding. The loss of the update is compared: TRL's and ours are the mean over the tokens of the update;
tunix takes the mean of the means of micro-batches, so its losses are weighed by their tokens first, and its update is another
one where they differ. Processor seconds are told beside the rates, for a machine that others use too.

Arguments: names of systems, where not all are wanted. ``make bench-peers`` puts the peers in place first.
"""

import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from install import LOGS, PYTHON_TRL, PYTHON_TUNIX, TRAINED
from script import Measured, Script
from train_workload import MICRO_BATCHES, SETTINGS, draw, num_targets, num_tokens

HERE = Path(__file__).parent
ROUNDS = 2
TARGETS = {"trl": 1.5, "tunix": 1.5}
LARGEST_DIFFERENCE = 1e-3
"""Of losses, relative: the same numbers added up in another order."""
SYSTEMS = {
    "headrace": (sys.executable, "train_headrace.py", ("",)),
    "trl": (PYTHON_TRL, "train_trl.py", tuple(map(str, MICRO_BATCHES))),
    "tunix": (PYTHON_TUNIX, "train_tunix.py", tuple(map(str, MICRO_BATCHES))),
}
"""Python, script, and its choices of a micro-batch."""


def main(*names: str) -> dict[str, Any]:
    """Every setting in turn.

    Raises:
        SystemExit: no such system.
    """
    if unknown := set(names) - set(SYSTEMS):
        raise SystemExit(
            f"expected names out of {', '.join(SYSTEMS)}; got {', '.join(sorted(unknown))}; in train_peers; mend them"
        )
    chosen = [name for name in SYSTEMS if not names or name in names]
    detail = {f"{num}x{median}": setting(num, median, chosen) for num, median in SETTINGS}
    peers = [name for name in chosen if name != "headrace" and "headrace" in chosen]
    ratios = {name: min(found["ratios"][name] for found in detail.values()) for name in peers}
    return {"bench": "train_peers", "ratios": ratios, "targets": TARGETS, "detail": detail}


def setting(num_sequences: int, median: int, chosen: list[str]) -> dict[str, Any]:
    """Rates, ratios and losses of one setting."""
    sequences = draw(num_sequences, median)
    tokens = num_tokens(sequences)
    print(f"{num_sequences} sequences, {tokens} tokens, {num_targets(sequences)} of them targets", flush=True)
    rounds: dict[str, dict[str, list[Measured]]] = {}
    for name in chosen:
        python, script, sizes = SYSTEMS[name]
        rounds[name] = {}
        for size in sizes:
            with opened(python, script, num_sequences, median, size) as process:
                rounds[name][size] = [measured(name, size, process, tokens)]
    best = {name: min(by_size, key=lambda size: by_size[size][0].seconds) for name, by_size in rounds.items()}
    with ExitStack() as stack:
        processes = {
            name: stack.enter_context(opened(*SYSTEMS[name][:2], num_sequences, median, size)) for name, size in best.items()
        }
        for _ in range(ROUNDS):
            for name, process in processes.items():
                rounds[name][best[name]].append(measured(name, best[name], process, tokens))
    found = {name: rounds[name][size] for name, size in best.items()}
    compare_losses(found)
    return {
        "tokens": tokens,
        "ratios": ratios(found),
        "by_processor": ratios(found, "processor_s"),
        "systems": {name: summary(best[name], found[name], tokens) for name in found},
    }


def opened(python: Any, script: str, num_sequences: int, median: int, size: str) -> Script:
    """A system at one setting."""
    arguments = [str(TRAINED), str(num_sequences), str(median), *([size] if size else [])]
    log = LOGS / f"{Path(script).stem}-{num_sequences}-{median}-{size or 'rows'}.log"
    return Script([python, HERE / script, *arguments], log)


def measured(name: str, size: str, process: Script, tokens: int) -> Measured:
    """One update, told while it runs."""
    found = process.measure()
    print(
        f"  {name} {size}: {tokens / found.seconds:.0f} tokens/s, {found.seconds:.1f} s, processor {found.processor_s:.1f} s, "
        f"{tokens / found.notes['capacity']:.2f} of its places hold tokens, loss {found.notes['loss']:.6f}",
        flush=True,
    )
    return found


def ratios(found: dict[str, list[Measured]], of: str = "seconds") -> dict[str, float]:
    """Of our rate to that of each peer, each in its best round."""
    seconds = {name: min(getattr(one, of) for one in of_one) for name, of_one in found.items()}
    return {
        name: value / seconds["headrace"] for name, value in seconds.items() if "headrace" in seconds and name != "headrace"
    }


def summary(size: str, found: list[Measured], tokens: int) -> dict[str, Any]:
    """Figures of one system."""
    return {
        "micro_batch": size,
        "tokens_per_s": [tokens / one.seconds for one in found],
        "processor_s": [one.processor_s for one in found],
        "notes": found[-1].notes,
    }


def compare_losses(found: dict[str, list[Measured]]) -> None:
    """Whether all made the same update.

    Raises:
        RuntimeError: they did not.
    """
    losses = {name: of_one[-1].notes["loss"] for name, of_one in found.items()}
    apart = max(losses.values()) - min(losses.values())
    if apart > LARGEST_DIFFERENCE * max(map(abs, losses.values())):
        raise RuntimeError(
            f"expected losses within {LARGEST_DIFFERENCE} of each other; got {losses}; it is not the same update"
        )


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
