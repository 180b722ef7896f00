"""``headrace`` in processes that may be killed. Its program ``counted`` is the calculator, tiny and counted, with evaluations.

They come before, during and after; see ``graphs/bench/recovery/program.py`` for what counts, fails by number and is late.
"""

import os
from pathlib import Path

from flow.testing import reach, serve
from graphs.bench.recovery.program import TINY, CountedEnv, counted_parts, told
from graphs.bench.recovery.world import LateTool
from graphs.calculator import CalculatorConfig
from graphs.catalogue import CATALOGUE, Entry
from graphs.cli import main as headrace
from graphs.program import Program, evaluation, training, warm_start
from stages.envs.housed import on_loop
from stages.envs.tool_env import ToolEnv
from stages.tasks.arithmetic import DEMONSTRATIONS
from stages.tasks.examples import read_examples
from stages.tools.calculator import calculator_tool


def counted(config: CalculatorConfig) -> Program:
    """The calculator, small, counted, and late by chance."""
    tool = LateTool(calculator_tool(), config.delay.max_s)
    parts = counted_parts(config, tool, on_loop(lambda task: CountedEnv(ToolEnv([tool]))))
    phases = (
        warm_start(config.warm_start, parts, read_examples(DEMONSTRATIONS)[:200]),
        evaluation("heldout_before", config.evaluate, parts),
        told(training(config.rl, parts)),
        evaluation("heldout_after", config.evaluate, parts),
    )
    return Program("counted", config, parts, phases, config.rl.max_lag)


CATALOGUE["counted"] = Entry("what is killed", CalculatorConfig, counted, TINY)


def truncate(path: Path, size: int) -> None:
    """What takes back the rows behind a commit calls this, and nothing else does; it may die on either side."""
    reach("rows.moved")
    TRUNCATE(path, size)
    reach("rows.cut")


TRUNCATE, os.truncate = os.truncate, truncate

if __name__ == "__main__":
    serve(headrace)
