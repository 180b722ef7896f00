"""How often the verdict names the bottleneck: runs in virtual time whose bottleneck an experiment tells, and a table of both.

``--seeds N`` for each of the kinds (20), from ``--first`` (2000) on: the verdict was built with seeds 0 to 19 and then tried on
1000 to 1019, so a fair figure takes others. ``--write`` puts the table into ``docs/verdict.md``. What the truth is, and which
ties count as right, stands in ``tests/flow/checks/bottlenecks.py``.
"""

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from flow.explain import explain

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "flow" / "checks"))
from bottlenecks import KINDS, drawn, gains, is_right, said, traced  # noqa: E402

PAGE = ROOT / "docs" / "verdict.md"
BEGIN, END = "<!-- the table: begin -->", "<!-- the table: end -->"
TARGET = 0.95


def said_of(kind: str, seed: int, folder: Path) -> tuple[str, dict[str, float]]:
    """What the verdict names, and what each lever brings in truth."""
    world = drawn(kind, seed)
    trace, base = traced(world, folder / "run.pftrace")
    verdict = explain(trace).graphs[0]
    gained = gains(world, base)
    return said(verdict.bound), gained


def table(counts: Mapping[tuple[str, str], int]) -> str:
    """Truth by row, what was said by column."""
    names = list(dict.fromkeys([*(true for true, _ in counts), *(said for _, said in counts)]))
    lines = ["| bottleneck by experiment | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for true in names:
        row = [str(counts.get((true, said), "")) for said in names]
        if any(row):
            lines.append(f"| **{true}** | " + " | ".join(row) + " |")
    return "\n".join(lines)


def main() -> float:
    """Print the table, and the result as JSON; gives the share that was right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=2000)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    counts: Counter[tuple[str, str]] = Counter()
    wrong: list[str] = []
    ties = 0
    with tempfile.TemporaryDirectory() as folder:
        for kind in KINDS:
            for seed in range(arguments.first, arguments.first + arguments.seeds):
                name, gained = said_of(kind, seed, Path(folder))
                best = max(gained, key=lambda name: gained[name])
                right = is_right(name, gained)
                ties += right and name != best
                counts[name if right else best, name] += 1
                if not right:
                    told = ", ".join(f"{lever} {gain:.0%}" for lever, gain in sorted(gained.items(), key=lambda p: -p[1])[:3])
                    wrong.append(f"{kind} {seed}: said {name}, which brings {gained.get(name, 0):.0%}; {told}")
    total = sum(counts.values())
    share = 1 - len(wrong) / total
    text = f"{table(counts)}\n\n{total} runs, {share:.1%} right, {ties} of them in a tie."
    print(text, *wrong, sep="\n")
    if arguments.write:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}")
    detail = {"runs": total, "ties": ties, "wrong": wrong}
    print(json.dumps({"bench": "verdict_table", "ratios": {"right": share}, "targets": {"right": TARGET}, "detail": detail}))
    return share


if __name__ == "__main__":
    main()
