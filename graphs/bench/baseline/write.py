"""Writes the record of the baseline anew: ``python -m graphs.bench.baseline.write``, after a change that is meant to show.

One episode at a time, as the experiment does. Refuses a sampled run of which a draw is a close call: take another ``SEED``.
"""

import asyncio
import sys

from graphs.bench.baseline.observed import KINDS, SEED, observe, warmed_parts
from graphs.bench.baseline.record import FILE, RunRecord, write_record
from graphs.bench.baseline.steady import OFF, steady_draws
from graphs.bench.small import SMALL


async def _records() -> dict[str, RunRecord]:
    parts, config = await warmed_parts(), SMALL.rl.model_copy(update={"max_concurrency": 1})
    found: dict[str, RunRecord] = {}
    async with parts.engine:
        for kind in KINDS:
            observed = await observe(kind, parts, config)
            found[kind] = observed.record
            if kind == "sampled":
                total, steady = steady_draws(observed, parts.model, parts.engine.context_length, SEED)
                sys.stdout.write(f"{total} tokens sampled, {total - steady} of them close calls\n")
                if steady < total:
                    raise SystemExit(
                        f"expected tokens that logits off by {OFF:g} do not change; got {total - steady} of {total} that they "
                        f"do, with SEED={SEED} in graphs/bench/baseline/observed.py; take another"
                    )
    return found


def main() -> None:
    """Run both trainings and write what came of them."""
    write_record(asyncio.run(_records()))
    sys.stdout.write(f"{FILE}: {FILE.stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
