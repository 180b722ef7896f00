"""How full rows are: tokens of a step over the places of all its micro-batches, the half-empty last ones among them.

Lengths have a heavy tail (log-normal, Pareto) up to the length of a row, 32 to 256 segments a step, 20 steps of each. One
that is as long as a row is always among them. Beside it: what a step waits for before its first micro-batch leaves, in
micro-batches. No clock and no other processes come in, so the figures are the same on every machine.
"""

import json
import statistics
from typing import Any

import numpy as np

from stages.batches.rows import RowFiller
from stages.records import Segment

LENGTH = 1024
SHAPES = {
    "one shape": ((2, LENGTH),),
    "halves at the end": ((2, LENGTH), (1, LENGTH)),
    "short rows and parts": ((2, LENGTH), (1, LENGTH), (8, LENGTH // 4), (2, LENGTH // 4)),
}
COUNTS = (32, 64, 128, 256)
GROUP, STEPS = 8, 20


def main() -> None:
    """Prints a line for each set of shapes and distribution, then the result as JSON."""
    detail: dict[str, Any] = {}
    for name, shapes in SHAPES.items():
        for kind in ("log-normal", "Pareto"):
            by_count = {count: [step(shapes, lengths(kind, count, seed)) for seed in range(STEPS)] for count in COUNTS}
            fills = {count: [fill for fill, _ in found] for count, found in by_count.items()}
            detail[f"{name}, {kind}"] = {
                "mean": {str(count): statistics.mean(found) for count, found in fills.items()},
                "least": {str(count): min(found) for count, found in fills.items()},
                "waited": statistics.mean(waited for found in by_count.values() for _, waited in found if waited is not None),
            }
            means = ", ".join(f"{count}: {statistics.mean(found):.3f} ({min(found):.3f})" for count, found in fills.items())
            print(f"{name}, {kind}: mean (least) of segments {means}", flush=True)
    worst = min(min(found["mean"].values()) for name, found in detail.items() if name.startswith("short rows"))
    print(json.dumps({"bench": "packing", "ratios": {"fill": worst}, "targets": {"fill": 0.9}, "detail": detail}))


def lengths(kind: str, count: int, seed: int) -> np.ndarray:
    """Lengths of the segments of one step."""
    random = np.random.default_rng(seed)
    shares = 0.12 * np.exp(random.normal(size=count)) if kind == "log-normal" else 0.05 * (1 + random.pareto(1.2, count))
    drawn = np.clip(LENGTH * shares, 2, LENGTH).astype(int)
    drawn[random.integers(count)] = LENGTH
    return drawn


def step(shapes: tuple[tuple[int, int], ...], drawn: np.ndarray) -> tuple[float, float | None]:
    """(how full the rows of a step are, micro-batches of tokens that came before the first left; ``None`` at its end)."""
    filler, places, waited = RowFiller(shapes), 0, None
    for at in range(0, len(drawn), GROUP):
        for rows in filler.add([(segment(length),) for length in drawn[at : at + GROUP]]):
            waited = waited or float(drawn[: at + GROUP].sum() / (shapes[0][0] * shapes[0][1]))
            places += rows.ids.size
    return drawn.sum() / (places + sum(rows.ids.size for rows in filler.flush())), waited


def segment(length: int) -> Segment:
    """Any tokens, the last of them a target."""
    return Segment(np.zeros(length, np.int32), np.arange(length) == length - 1)


if __name__ == "__main__":
    main()
