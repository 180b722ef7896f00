"""How training draws its tasks: alike, by the weights of their sources, or most where there is most to learn.

The sources themselves are in ``stages/tasks``; which tasks there are is for whoever makes the parts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from flow import Graph, Items, Node
from stages.records import Group, LoadWeights, Task
from stages.tasks.curriculum import Curriculum, CurriculumConfig
from stages.tasks.mixture import Mixture
from stages.tasks.observed import Observed
from stages.tasks.source import Tasks
from stages.tasks.tables import stretches_of


class DrawConfig(BaseModel):
    """How training draws its tasks. As it is, all of them alike, epoch after epoch."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    weights: dict[str, Annotated[float, Field(gt=0)]] = {}
    """Weight of each source of the tasks, such as ``math 3 code 1``: at every point of a run each was drawn its share, to
    within one draw. Relative; every source has one. Empty for none."""
    curriculum: CurriculumConfig | None = None
    """Draw more from the difficulties at which success is neither sure nor rare; ``None`` for all alike."""

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if self.weights and self.curriculum is not None:
            raise ValueError("expected weights of sources or a curriculum over difficulties, got both; leave one out")
        return self


@dataclass(frozen=True)
class Drawing:
    """Tasks on their way into a graph.

    Attributes:
        source: draws them.
        ahead: tasks that may be drawn and not opened, where it is told what became of them; ``None`` where it is not.
    """

    source: Tasks | Mixture | Curriculum
    ahead: int | None = None

    def load(self, load: LoadWeights) -> LoadWeights:
        """What a cell of weights is loaded by, so that a step counts before the next groups are drawn."""
        return self.source.counted_before(load) if isinstance(self.source, Curriculum) else load

    def before(self, graph: Graph, prompts: Node[None, Task], members: Node[Task, Task]) -> None:
        """Join the source with what opens groups."""
        if self.ahead is None:
            prompts >> members
        else:
            graph.edge(prompts, members, capacity=Items(max(1, self.ahead)))

    def after(self, graph: Graph, scored: Node[Any, Group], advantages: Node[Group, Group]) -> None:
        """Join what scores groups with what makes advantages of them, and have the source told of each group in between.

        Scored groups are kept: a judge may answer otherwise, and a replay is made of them. What tells the source has a state,
        so it stands behind that edge; before the advantages, which may filter just those groups that say how hard a task is.
        """
        told = advantages
        if isinstance(self.source, Curriculum):
            told = graph.stage("observed", Observed(self.source))
            told >> advantages
        graph.edge(scored, told, durable=True)


def drawing(config: DrawConfig, tasks: Sequence[Task], seed: int) -> Drawing:
    """Draw from a set of tasks.

    Args:
        config: see ``DrawConfig``.
        tasks: the set.
        seed: of the order.

    Raises:
        ValueError: sources without a weight, weights without a source, or tasks without a difficulty.
    """
    if config.weights:
        parts = _parted(tasks, "source")
        if set(parts) != set(config.weights):
            raise ValueError(
                f"expected a weight for each source of the tasks, {', '.join(sorted(parts))}; got them for "
                f"{', '.join(sorted(config.weights))}, in rl.draw.weights; name each once"
            )
        return Drawing(Mixture({name: (Tasks(part, seed), config.weights[name]) for name, part in parts.items()}, seed))
    if config.curriculum is not None:
        buckets = {name: Tasks(part, seed) for name, part in _parted(tasks, "difficulty").items()}
        return Drawing(Curriculum(buckets, config.curriculum), config.curriculum.ahead)
    return Drawing(Tasks(tasks, seed, stretches=stretches_of(tasks)))


def _parted(tasks: Sequence[Task], by: str) -> dict[str, list[Task]]:
    """Tasks by a column that each has."""
    parts: dict[str, list[Task]] = {}
    without = [task.id for task in tasks if not getattr(task, by)]
    if without:
        raise ValueError(
            f"expected a {by} for each task, got {len(without)} without, such as {', '.join(without[:5])}, in rl.draw; add the "
            "column, or leave this setting out"
        )
    for task in tasks:
        parts.setdefault(str(getattr(task, by)), []).append(task)
    return parts
