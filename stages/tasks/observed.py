"""A stage that tells a curriculum what became of each group, and changes nothing."""

from flow import Context
from stages.records import Group
from stages.tasks.curriculum import Curriculum, ObservedState


class Observed:
    """Stage: tells a curriculum of each scored group, and passes it on as it is. Stands right behind the rewards.

    Args:
        curriculum: draws what the graph trains.
    """

    def __init__(self, curriculum: Curriculum) -> None:
        self._curriculum = curriculum

    async def __call__(self, group: Group, context: Context) -> Group:
        """Tell and pass on."""
        self._curriculum.observe(group)
        return group

    def state(self) -> ObservedState:
        """What the curriculum was told by now."""
        return self._curriculum.observed()

    def restore(self, state: ObservedState) -> None:
        """Tell it again."""
        self._curriculum.restore_observed(state)
