"""The requests every system answers: token ids of a prompt, and exactly how many tokens to make from it.

Committed as ``workload.jsonl``, so that figures of two days are of the same work. Run as a script it is drawn anew: prompts are
openings of this project's module docstrings, 8 to 60 tokens; lengths are log-normal around 24, cut off at 192. So a tenth of
the requests makes a third of the tokens, and a static batch waits for its longest. Only the standard library is needed to read
it, since the peers' environment reads it too.
"""

import ast
import json
import random
import sys
from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).with_name("workload.jsonl")
ROOT = Path(__file__).parents[3]
NUM_REQUESTS = 64
PROMPT_TOKENS = (8, 60)
MEDIAN_TOKENS, SIGMA, MOST_TOKENS = 24, 1.0, 192
CONTEXT = 256
"""Positions that are enough for every request."""


class Request(NamedTuple):
    """One of them."""

    prompt: list[int]
    num_tokens: int


def read() -> list[Request]:
    """The committed requests, in order of arrival."""
    return [Request(**json.loads(line)) for line in FILE.read_text().splitlines()]


def warm_up(requests: list[Request]) -> list[Request]:
    """What every system answers before it is measured."""
    return [Request(request.prompt, min(request.num_tokens, 8)) for request in requests[:32]]


def draw(gguf: str) -> None:
    """Write the file anew, with the tokenizer of a model."""
    sys.path.insert(0, str(ROOT))
    from stages.text.gguf_tokenizer import load_gguf_tokenizer

    tokenizer, chance = load_gguf_tokenizer(gguf), random.Random(0)
    files = [file for folder in ("flow", "stages", "graphs", "tests") for file in sorted((ROOT / folder).rglob("*.py"))]
    texts = [" ".join((ast.get_docstring(ast.parse(file.read_text())) or "").split()) for file in files]
    prompts = [ids for text in texts if len(ids := tokenizer.encode(text)) >= PROMPT_TOKENS[1]]
    lines = []
    for ids in chance.sample(prompts, NUM_REQUESTS):
        length = round(chance.lognormvariate(0, SIGMA) * MEDIAN_TOKENS)
        lines.append({"prompt": ids[: chance.randint(*PROMPT_TOKENS)], "num_tokens": max(4, min(MOST_TOKENS, length))})
    FILE.write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    draw(sys.argv[1])
