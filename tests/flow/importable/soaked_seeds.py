"""What the soak does with one seed, and with a block of them, in a process of its own."""

import random
import time
from collections import Counter
from dataclasses import dataclass, field

from flow.testing import RandomGraph, check_graph, random_graph


@dataclass
class Soaked:
    """What a block of seeds came to.

    Attributes:
        failed: by seed, what was found.
        counts: runs, kills, workers that left, items dropped by reason.
        seconds: of processor time.
    """

    failed: dict[int, str] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0


def drawn(seed: int) -> RandomGraph:
    """Every fifth graph trains."""
    training = seed % 5 == 0
    return random_graph(random.Random(seed), tasks=60 if training else 8, training=training)


def disturbances(seed: int) -> dict[str, float]:
    """Every kind of disturbance by itself, all together, and none."""
    rnd = random.Random(-seed)
    return {
        "kill": rnd.choice([0.0, 0.02, 0.1, 0.2]),
        "leave": rnd.choice([0.0, 0.3, 1.0]),
        "late": rnd.choice([0.0, 0.1, 0.3]),
        "slow": rnd.choice([0.0, 0.0, 0.05]),
    }


def soak(seeds: range) -> Soaked:
    """Check the graphs of these seeds."""
    soaked, began = Soaked(), time.process_time()
    for seed in seeds:
        try:
            done = check_graph(drawn(seed), seed, **disturbances(seed))
        except Exception as error:
            soaked.failed[seed] = f"{type(error).__name__}: {error}"[:2000]
            continue
        soaked.counts.update({"runs": 1, "kills": done.kills, "workers that left": done.left})
        for node in done.summary.nodes.values():
            soaked.counts.update(node.dropped)
    soaked.seconds = time.process_time() - began
    return soaked
