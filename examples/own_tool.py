"""A tool and tasks of your own, trained with GRPO: ``headrace run examples/own_tool.py:rivers`` takes its settings too.

The policy starts untrained, so three steps only show that everything turns; a real run wants a pretrained one, which
``own_parts`` takes as ``model``, or a warm start before it, as ``graphs/calculator.py`` has one.
"""

from pydantic import BaseModel

from graphs.cli import main
from graphs.evaluate import EvaluateConfig
from graphs.own_parts import own_parts
from graphs.program import Program, evaluation, training
from graphs.rl_config import RlConfig
from stages.agents.sampling import SamplingConfig
from stages.envs.housed import on_loop
from stages.envs.tool_env import ToolEnv
from stages.records import Task
from stages.rewards.answers import exact_answer
from stages.tools.function import FunctionTool
from stages.train.config import TrainerConfig

LENGTH_KM = {"nile": 6650, "rhine": 1233, "elbe": 1094, "oder": 840, "main": 525, "isar": 292}
TASKS = [Task(name, name, answer=str(length)) for name, length in LENGTH_KM.items()]


async def river(name: str) -> str:
    """Length of a river in kilometres."""
    return str(LENGTH_KM.get(name, "unknown"))


RIVER = FunctionTool(river, deadline_s=5)


class RiversConfig(BaseModel):
    steps: int = 3
    """Optimizer steps."""


def rivers(config: RiversConfig) -> Program:
    make_env = on_loop(lambda task: ToolEnv([RIVER]))
    parts = own_parts(TASKS[:4], make_env, heldout=TASKS[4:], tools=[RIVER], reward=exact_answer)
    sampling = SamplingConfig(max_tokens_per_turn=8, max_turns=2)
    trainer = TrainerConfig(row_length=128)
    rl = RlConfig(steps=config.steps, groups_per_step=4, group_size=4, max_concurrency=16, sampling=sampling, trainer=trainer)
    held_out = EvaluateConfig(num_tasks=2, sampling=sampling)
    return Program("rivers", config, parts, (training(rl, parts), evaluation("heldout", held_out, parts)), max_lag=0)


if __name__ == "__main__":
    import tempfile

    main(["run", f"{__file__}:rivers", "--options.folder", tempfile.mkdtemp()])
