"""Arithmetic questions for a calculator, and demonstrations of mixed quality. Pure functions of (config, seed, index).

An expression belongs to the training or to the held-out set by its own hash, so the two cannot share one, whatever the seeds.
``python -m stages.tasks.arithmetic`` writes the demonstrations that the ready graphs read; ``--help`` lists its knobs.
"""

import argparse
import hashlib
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import pydantic

from stages.records import Example, Message, Preference, Task, ToolCall
from stages.tasks.examples import write_examples

Split = Literal["train", "heldout"]
DEMONSTRATIONS = Path(__file__).parent / "data" / "calculator_demonstrations.jsonl"


class ArithmeticConfig(pydantic.BaseModel):
    """Which questions there are."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    operators: str = pydantic.Field(default="*", min_length=1, pattern=r"^[-+*]+$")
    """Operators to draw from, each as likely as it is often in here."""
    digits: tuple[pydantic.PositiveInt, ...] = pydantic.Field(default=(3, 2), min_length=2, max_length=6)
    """Digits of each operand, in order; as many operands as numbers, each of at most 9 digits."""
    prompt: str = pydantic.Field(default="{expression}", pattern=r"\{expression\}")
    """Text of the question; ``{expression}`` stands for the expression."""
    heldout_share: float = pydantic.Field(default=0.1, gt=0, lt=1)
    """Share of all expressions that belong to the held-out set."""


def arithmetic_task(config: ArithmeticConfig, seed: int, index: int, split: Split) -> Task:
    """One question. Different indices may ask the same; an expression never occurs in both splits.

    Args:
        config: which questions there are.
        seed: of the set.
        index: from 0.
        split: the set it belongs to.

    Raises:
        ValueError: the split holds hardly any expression: the config allows too few.
    """
    chance = random.Random(f"arithmetic {seed} {index} {split}")
    for _ in range(1000):
        numbers = [_with_digits(chance, digits) for digits in config.digits]
        operators = [config.operators[_below(chance, len(config.operators))] for _ in numbers[1:]]
        expression = str(numbers[0]) + "".join(f"{o}{n}" for o, n in zip(operators, numbers[1:], strict=True))
        if split_of(expression, config.heldout_share) == split:
            prompt = config.prompt.replace("{expression}", expression)
            answer = str(value_of(numbers, operators))
            return Task(f"{split}-{seed}-{index}", prompt, answer, "arithmetic", {"expression": expression})
    raise ValueError(
        f"expected an expression of the {split} set within 1000 draws; got none, for {config!r}; "
        "allow more digits or operators, or a larger share"
    )


def arithmetic_tasks(config: ArithmeticConfig, seed: int, num_tasks: int, split: Split) -> tuple[Task, ...]:
    """The questions with indices 0 to ``num_tasks - 1``."""
    return tuple(arithmetic_task(config, seed, index, split) for index in range(num_tasks))


def split_of(expression: str, heldout_share: float) -> Split:
    """The set an expression belongs to, by its hash alone."""
    word = int.from_bytes(hashlib.blake2b(expression.encode(), digest_size=8).digest(), "big")
    return "heldout" if word < heldout_share * 2**64 else "train"


def value_of(numbers: Sequence[int], operators: Sequence[str]) -> int:
    """Value of ``numbers[0] operators[0] numbers[1] ...``, multiplication before addition and subtraction."""
    terms = [numbers[0]]
    for sign, number in zip(operators, numbers[1:], strict=True):
        if sign == "*":
            terms[-1] *= number
        else:
            terms.append(number if sign == "+" else -number)
    return sum(terms)


def demonstrations(
    config: ArithmeticConfig,
    seed: int,
    num_examples: int,
    share_with_tool: float,
    *,
    tool: str = "calculator",
    argument: str = "expression",
) -> tuple[Example, ...]:
    """Demonstrations of mixed quality over training questions.

    A share of them, to the nearest example, asks the tool and answers with what it gave. The others answer at once with an
    estimate, the answer rounded to one digit, which is mostly wrong: they show the form of an answer, not how to find it.

    Args:
        config: which questions there are.
        seed: of the questions and the mix.
        num_examples: how many.
        share_with_tool: from 0 to 1.
        tool: name of the tool.
        argument: name of its parameter.
    """
    mix = random.Random(f"mix {seed}")
    ranks = [mix.random() for _ in range(num_examples)]
    with_tool = set(sorted(range(num_examples), key=ranks.__getitem__)[: round(share_with_tool * num_examples)])
    examples = []
    for index in range(num_examples):
        asked, with_call, at_once = _ways(config, seed, index, tool, argument)
        examples.append(Example(f"demo-{seed}-{index}", (asked, *(with_call if index in with_tool else at_once))))
    return tuple(examples)


def preferences(
    config: ArithmeticConfig, seed: int, num_pairs: int, *, tool: str = "calculator", argument: str = "expression"
) -> tuple[Preference, ...]:
    """Pairs over training questions: asking the tool is preferred to answering at once with an estimate.

    Args:
        config: which questions there are.
        seed: of the questions.
        num_pairs: how many.
        tool: name of the tool.
        argument: name of its parameter.
    """
    ways = (_ways(config, seed, index, tool, argument) for index in range(num_pairs))
    apart = [(asked, chosen, rejected) for asked, chosen, rejected in ways if chosen[-1] != rejected[-1]]
    return tuple(
        Preference(f"pair-{seed}-{at}", (asked,), chosen, rejected) for at, (asked, chosen, rejected) in enumerate(apart)
    )


def _ways(
    config: ArithmeticConfig, seed: int, index: int, tool: str, argument: str
) -> tuple[Message, tuple[Message, ...], tuple[Message, ...]]:
    """A question, what asks the tool and answers with what it gave, and what answers at once with an estimate."""
    task = arithmetic_task(config, seed, index, "train")
    answer = str(task.answer)
    call = ToolCall("call-1-0", tool, {argument: task.extra["expression"]})
    answered = Message("tool", answer, call_id=call.id)
    with_call = (Message("assistant", "", (call,)), answered, Message("assistant", answer))
    return Message("user", task.prompt), with_call, (Message("assistant", _estimate(answer)),)


def _estimate(answer: str) -> str:
    sign, digits = ("-", answer[1:]) if answer.startswith("-") else ("", answer)
    unit = 10 ** (len(digits) - 1)
    return sign + str((int(digits) + unit // 2) // unit * unit)


def _with_digits(chance: random.Random, digits: int) -> int:
    low = 0 if digits == 1 else 10 ** (digits - 1)
    return low + _below(chance, 10**digits - low)


def _below(chance: random.Random, bound: int) -> int:
    # Of all methods of Random, only random() is promised to give the same numbers in every Python. 53 bits are plenty here.
    return int(chance.random() * bound)


def main(arguments: Sequence[str] | None = None) -> None:
    """Write a file of demonstrations; without options, the one in this package."""
    default = ArithmeticConfig()
    parser = argparse.ArgumentParser(description="Write calculator demonstrations of mixed quality as JSONL.")
    parser.add_argument("--output", type=Path, default=DEMONSTRATIONS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--num-examples", type=int, default=NUM_EXAMPLES)
    parser.add_argument("--share-with-tool", type=float, default=SHARE_WITH_TOOL)
    parser.add_argument("--operators", default=default.operators)
    parser.add_argument("--digits", type=int, nargs="+", default=default.digits)
    given = parser.parse_args(arguments)
    config = ArithmeticConfig(operators=given.operators, digits=tuple(given.digits))
    write_examples(given.output, demonstrations(config, given.seed, given.num_examples, given.share_with_tool))


NUM_EXAMPLES = 2000
SHARE_WITH_TOOL = 0.35

if __name__ == "__main__":
    main()
