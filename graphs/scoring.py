"""What a graph asks other models about its groups: a reference, a teacher, a critic. The nodes between rewards and advantages.

rewards >> reference >> teacher >> values >> advantages; each only where it is asked for
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flax import nnx

from flow import Cell, Graph, Node, Threads
from graphs.parts import Parts
from graphs.scoring_config import CriticConfig, ReferenceConfig, TeacherConfig
from graphs.teacher import checked
from stages.models.critic import ActorCritic
from stages.models.lora import has_adapters, without_adapters
from stages.models.mesh import mesh_of
from stages.records import Group, LoadWeights, Weights
from stages.scoring.loading import load_all
from stages.scoring.stage import TokenScores
from stages.train.following import FollowConfig


@dataclass(frozen=True)
class Scoring:
    """What ``scoring`` put together.

    Attributes:
        model: what the trainer trains: the policy, with its critic where there is one.
        follow: for the trainer.
        stages: by the name of their node, in order.
    """

    model: nnx.Module
    follow: FollowConfig | None
    stages: Mapping[str, TokenScores]

    def load(self, engine: LoadWeights) -> LoadWeights:
        """The one load of the cell of weights: a version is in force when the engine and all of these have it."""
        return load_all(engine, *(stage.load for stage in self.stages.values())) if self.stages else engine

    def after(
        self, graph: Graph, node: Node[Any, Group], weights: Cell[Weights] | None = None, *, durable: bool = False
    ) -> Node[Any, Group]:
        """Declare the nodes behind one that gives groups, and give the last.

        Args:
            graph: gets the nodes.
            node: gives groups.
            weights: cell that ``load`` belongs to, read by those that change with it; ``None`` where nobody looks at versions.
            durable: whether what the node gives is not to be made again after a kill.
        """
        for number, (name, stage) in enumerate(self.stages.items()):
            changes = name == "values" or (name == "reference" and self.follow is not None)
            following = graph.stage(name, stage, placement=Threads(), reads=weights if changes else None)
            graph.edge(node, following, durable=durable and number == 0)
            node = following
        return node


def scoring(
    parts: Parts,
    *,
    reference: ReferenceConfig | None = None,
    teacher: TeacherConfig | None = None,
    critic: CriticConfig | None = None,
    temperature: float,
    group_size: int,
    row_length: int,
    row_lengths: tuple[int, ...] = (),
) -> Scoring:
    """Put together what scores the groups of a graph.

    Args:
        parts: policy, teacher and devices.
        reference: see ``ReferenceConfig``; ``None`` without.
        teacher: see ``TeacherConfig``; ``None`` without.
        critic: see ``CriticConfig``; ``None`` without.
        temperature: that episodes are sampled at.
        group_size: members of a group.
        row_length: of the trainer.
        row_lengths: of the trainer.

    Raises:
        ValueError: a teacher is asked for and there is none, or it lacks tokens; or a reference that the trainer holds anyway
            is to rest in host memory.
    """
    model = parts.model if critic is None else ActorCritic(parts.model)
    own, lengths = mesh_of(nnx.state(parts.model, nnx.Param)), (*row_lengths, row_length)
    mesh = parts.reference_mesh or own
    stages: dict[str, TokenScores] = {}
    if reference is not None:
        _check_reference(parts, reference)
        stages["reference"] = TokenScores(
            parts.model if reference.follow is not None else without_adapters(parts.model), "reference",
            reference.shaped(lengths, group_size, mesh), temperature=temperature, mesh=parts.reference_mesh,
        )  # fmt: skip
    if teacher is not None:
        found = checked(parts.teacher, parts.chat.vocab_size)
        stages["teacher"] = TokenScores(
            found.model, "teacher", teacher.shaped(lengths, group_size, mesh), temperature=temperature, fetch=found.fetch,
            mesh=mesh,
        )  # fmt: skip
    if critic is not None:
        stages["values"] = TokenScores(model, "values", critic.shaped(lengths, group_size, own))
    return Scoring(model, None if reference is None else reference.follow, stages)


def _check_reference(parts: Parts, config: ReferenceConfig) -> None:
    if config.memory == "host" and config.follow is None and parts.reference_mesh is None and has_adapters(parts.model):
        raise ValueError(
            "expected a reference with parameters of its own to rest in host memory, got what is beneath the adapters of the "
            "policy, which the trainer holds, in reference.memory; leave it out, or set reference_mesh"
        )
