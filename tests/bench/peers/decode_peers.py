"""Tokens a second of the engine against two that people use: transformers' ``generate`` and llama.cpp's server.

Same model in float32, same prompts, the same number of tokens from each, lengths with a heavy tail (``workload.jsonl``). Each
system answers the whole workload once at each of its settings; then the best settings of all take turns, and the ratios are of
the best round of each: a round is spoilt by whoever else uses the machine, and the more so for a peer, whose threads spin
while they wait for one another. ``sorted`` (batches by length, which nobody can know beforehand) and float16 are reported
only, at the setting of their counterpart. The first greedy tokens of all replies are compared, so that it is the same model
everywhere. Processor seconds are told beside the rates: where a peer's are far below cores times seconds, others were using
the machine, and the figures are worth little.

Arguments: GGUF file, then names of systems, where not all are wanted. ``make bench-peers`` puts the peers in place first.
"""

import json
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

from install import LOGS, MODEL, PYTHON, SERVER
from llama_server import LlamaServer
from script import Measured, Script
from workload import read

HERE = Path(__file__).parent
ROUNDS = 2
SIZES = (8, 16, 32)
"""Slots, or requests in a batch."""
ENDS = (0, 2)
"""Tokens after which llama.cpp's and our text part ways on purpose: it bans them when told to go on."""
COMPARED = 16
"""Tokens of each reply that are compared: later, a draw between two tokens has parted most of them."""
LEAST_EQUAL = 0.8
"""Share of them that the same model makes, float16 included."""
COUNTERPARTS = {"transformers_sorted": "transformers", "llama_cpp_f16": "llama_cpp_f32"}
"""What is not swept, and whose setting it takes."""
TARGETS = {"transformers": 2.0, "llama_cpp_f32": 1.0}

System = Callable[[int], AbstractContextManager[Any]]


def systems(gguf: str) -> dict[str, System]:
    """Each opens at one of the sizes."""

    def script(python: Path | str, name: str, *arguments: str | Path) -> System:
        return lambda size: Script(
            [python, HERE / arguments[0], arguments[1], str(size), *arguments[2:]], LOGS / f"{name}-{size}.log"
        )

    def server(name: str, kind: str) -> System:
        return lambda size: LlamaServer(SERVER, MODEL / f"{kind}.gguf", size, kind, LOGS / f"{name}-{size}.log")

    return {
        "headrace": script(sys.executable, "headrace", "headrace_engine.py", gguf),
        "transformers": script(PYTHON, "transformers", "torch_generate.py", MODEL / "hf", "arrival"),
        "llama_cpp_f32": server("llama_cpp_f32", "f32"),
        "transformers_sorted": script(PYTHON, "transformers_sorted", "torch_generate.py", MODEL / "hf", "sorted"),
        "llama_cpp_f16": server("llama_cpp_f16", "f16"),
    }


def main(gguf: str, *names: str) -> dict[str, object]:
    """Sweep, then let the best take turns."""
    known = systems(gguf)
    if unknown := set(names) - set(known):
        raise SystemExit(
            f"expected names out of {', '.join(known)}; got {', '.join(sorted(unknown))}; in decode_peers; mend them"
        )
    chosen = {name: known[name] for name in known if not names or name in names}
    wanted = [request.num_tokens for request in read()]
    print(f"{len(wanted)} requests, {sum(wanted)} tokens; {', '.join(chosen)}", flush=True)
    swept = sweep({name: system for name, system in chosen.items() if COUNTERPARTS.get(name) not in chosen})
    best = {name: min(by_size, key=lambda size: by_size[size].seconds) for name, by_size in swept.items()}
    best |= {name: best[COUNTERPARTS[name]] for name in chosen if name not in best}
    rounds: dict[str, list[Measured]] = {name: [] for name in chosen}
    with ExitStack() as stack:
        opened = {name: stack.enter_context(system(best[name])) for name, system in chosen.items()}
        for _ in range(ROUNDS):
            for name in chosen:
                rounds[name].append(measured(name, best[name], opened[name]))
    detail = {name: summary(best[name], swept.get(name, {}), rounds[name]) for name in chosen}
    for name, share in equal_shares(rounds).items():
        print(f"{name}: {share:.3f} of the first {COMPARED} tokens of each reply are those of headrace", flush=True)
        detail[name]["equal_tokens"] = share
    return {"bench": "decode_peers", "ratios": ratios(rounds), "targets": TARGETS, "detail": detail}


def sweep(chosen: dict[str, System]) -> dict[str, dict[int, Measured]]:
    """A round of each system at each size."""
    found: dict[str, dict[int, Measured]] = {name: {} for name in chosen}
    for size in SIZES:
        for name, system in chosen.items():
            with system(size) as opened:
                found[name][size] = measured(name, size, opened)
    return found


def measured(name: str, size: int, opened: Any) -> Measured:
    """One round, told while it runs, and refused where tokens are missing."""
    found: Measured = opened.measure()
    wanted, made = [request.num_tokens for request in read()], [len(reply) for reply in found.replies]
    if made != wanted:
        raise RuntimeError(f"expected {sum(wanted)} tokens of {name}, got {sum(made)}; see its log in {LOGS}")
    notes = "".join(f", {key} {value:.2f}" for key, value in found.notes.items())
    print(
        f"{name} at {size}: {rate(found):.0f} tokens/s, {found.seconds:.1f} s, processor {found.processor_s:.1f} s{notes}",
        flush=True,
    )
    return found


def rate(found: Measured) -> float:
    """Tokens a second."""
    return sum(map(len, found.replies)) / found.seconds


def ratios(rounds: dict[str, list[Measured]]) -> dict[str, float]:
    """Of the engine's rate to that of each peer, each in its best round; none where the engine is not measured."""
    best = {name: max(map(rate, of_one)) for name, of_one in rounds.items()}
    return {name: best["headrace"] / value for name, value in best.items() if "headrace" in best and name != "headrace"}


def summary(best: int, swept: dict[int, Measured], rounds: list[Measured]) -> dict[str, object]:
    """Rates of one system."""
    return {
        "size": best,
        "tokens_per_s": [rate(found) for found in rounds],
        "processor_s": [found.processor_s for found in rounds],
        "sweep": {str(size): rate(found) for size, found in swept.items()},
        "notes": rounds[-1].notes,
    }


def equal_shares(rounds: dict[str, list[Measured]]) -> dict[str, float]:
    """How far each system's greedy tokens are the engine's.

    Raises:
        RuntimeError: so few are that it cannot be the same model.
    """
    if "headrace" not in rounds:
        return {}
    ours = rounds["headrace"][-1].replies
    shares = {name: equal_share(ours, found[-1].replies) for name, found in rounds.items() if name != "headrace"}
    if other := [name for name, share in shares.items() if share < LEAST_EQUAL]:
        raise RuntimeError(
            f"expected at least {LEAST_EQUAL} of the first tokens to be equal; got {shares}; {', '.join(other)} runs another "
            "model: remove .cache/peers/model and run again"
        )
    return shares


def equal_share(ours: list[list[int]], theirs: list[list[int]]) -> float:
    """Share of the first tokens that two systems have in common, up to the end of a text."""
    equal = total = 0
    for one, other in zip(ours, theirs, strict=True):
        end = next((at for at, token in enumerate(one[:COMPARED]) if token in ENDS), min(COMPARED, len(one)))
        equal += sum(a == b for a, b in zip(one[:end], other[:end], strict=True))
        total += end
    return equal / total


if __name__ == "__main__":
    # Ended from outside, it leaves no server behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("decode_peers: ended by a signal"))
    print(json.dumps(main(*sys.argv[1:])))
