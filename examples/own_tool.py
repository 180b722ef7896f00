"""A tool and tasks of your own, trained with GRPO: ``headrace run examples/own_tool.py:rivers`` takes its settings too.

The policy starts untrained, so three steps only show that everything turns; a real run wants a warm start before it, as
``graphs/calculator.py`` has one.
"""

from flax import nnx
from pydantic import BaseModel

from graphs.cli import main
from graphs.engine_trace import EngineTrace
from graphs.evaluate import EvaluateConfig
from graphs.grpo import GrpoConfig
from graphs.parts import Parts
from graphs.program import Program, evaluation, training
from stages.agents.sampling import SamplingConfig
from stages.agents.tool_agent import ToolAgent
from stages.envs.environment import opening_messages
from stages.envs.tool_env import ToolEnv
from stages.models.config import ModelConfig
from stages.models.transformer import Transformer
from stages.records import Task
from stages.rewards.answers import exact_answer
from stages.rollout.config import EngineConfig
from stages.rollout.engine import Engine
from stages.text.compact import CompactChat
from stages.tools.function import FunctionTool
from stages.train.config import TrainerConfig

LENGTH_KM = {"nile": 6650, "rhine": 1233, "elbe": 1094, "oder": 840, "main": 525, "isar": 292}


async def river(name: str) -> str:
    """Length of a river in kilometres."""
    return str(LENGTH_KM.get(name, "unknown"))


class RiversConfig(BaseModel):
    steps: int = 3
    """Optimizer steps."""
    width: int = 32
    """Size of the policy."""


def rivers(config: RiversConfig) -> Program:
    tool = FunctionTool(river, deadline_s=5)
    chat = CompactChat([tool])
    shape = ModelConfig(
        vocab_size=chat.vocab_size, width=config.width, num_layers=2, num_heads=4, num_kv_heads=4, head_size=8, mlp_width=64,
        context_length=64,
    )  # fmt: skip
    model, trace = Transformer(shape, nnx.Rngs(0)), EngineTrace()
    tasks = [Task(name, name, answer=str(length)) for name, length in LENGTH_KM.items()]
    parts = Parts(
        model=model,
        load=lambda: None,
        engine=Engine(model, EngineConfig(slots=16, context_length=64, prefill_rows=8, prefill_chunk=16), trace=trace),
        trace=trace,
        chat=chat,
        agent=ToolAgent(),
        make_env=lambda task: ToolEnv([tool]),
        opening=opening_messages,
        tools=(tool,),
        reward=exact_answer,
        train=tasks[:4],
        heldout=tasks[4:],
    )
    sampling = SamplingConfig(max_tokens_per_turn=8, max_turns=2)
    trainer = TrainerConfig(row_length=64)
    grpo = GrpoConfig(
        steps=config.steps, groups_per_step=4, group_size=4, max_concurrency=16, sampling=sampling, trainer=trainer
    )
    held_out = EvaluateConfig(num_tasks=2, sampling=sampling)
    return Program("rivers", config, parts, (training(grpo, parts), evaluation("heldout", held_out, parts)), max_lag=0)


if __name__ == "__main__":
    import tempfile

    main(["run", f"{__file__}:rivers", "--options.folder", tempfile.mkdtemp()])
