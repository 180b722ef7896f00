"""A stage with a bug that ordinary tests pass over, the report that finds it, and the stage repaired.

The stage asks a service over a line that it keeps. An attempt that is cancelled while it asks never gives its line back: under
deadlines and retries the line is gone, hours later, somewhere else.
"""

import argparse
import asyncio

from hypothesis import strategies as st

from flow import Context
from flow.testing import check_stage


async def ask(line: str, word: str) -> str:
    await asyncio.sleep(0.2)  # virtual seconds, under check_stage
    return f"{word} over {line[:4]}"


class Asks:
    def __init__(self) -> None:
        self.idle = ["line one"]

    async def __call__(self, word: str, context: Context) -> str:
        line = self.idle.pop()
        reply = await ask(line, word)
        self.idle.append(line)
        return reply


class AsksRepaired(Asks):
    async def __call__(self, word: str, context: Context) -> str:
        line = self.idle.pop()
        try:
            return await ask(line, word)
        finally:
            self.idle.append(line)


def main(examples: int) -> None:
    words = st.text("abc", min_size=1)
    try:
        check_stage(Asks, words, examples=examples)
    except AssertionError as error:
        print(error)
    check_stage(AsksRepaired, words, examples=examples)
    print("the repaired stage keeps its contract")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=30, help="lists of inputs that are tried")
    main(parser.parse_args().steps)
