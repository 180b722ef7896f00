"""Gives a scored group its advantages: ``Group -> Group``, or filtered where the group says nothing.

Not the maths: each rule is a pure function in a file of its own beside this one, ``credit.py`` feeds them, ``config.py`` has
the settings. The first group of a run with ``rule="gae"`` compiles its scan: place the stage on threads to keep that off the
loop.
"""

import msgspec
import numpy as np

from flow import Context, Filtered
from stages.advantages.config import AdvantagesConfig
from stages.advantages.credit import credit, is_live
from stages.records import Group

_REMEDY = (
    "no token of the group has an advantage, as where all members get one reward; the tasks are too easy or too hard for the "
    "policy: take others, or a larger group_size, or keep such groups with advantages.filter_no_signal=False"
)


class Advantages:
    """Advantages of groups, by the rule of the settings.

    Args:
        config: see ``AdvantagesConfig``; ``None`` takes the defaults.
    """

    def __init__(self, config: AdvantagesConfig | None = None) -> None:
        self._config = config or AdvantagesConfig()

    def __call__(self, group: Group, context: Context) -> Group | Filtered:
        """Fill ``Group.advantages`` and ``live``, and ``returns`` where there is a critic; members that are not live get 0.

        Raises:
            ValueError: see ``credit``.
        """
        live = np.array([is_live(episode, self._config) for episode in group.episodes], dtype=bool)
        given = credit(group.episodes, live, self._config)
        if self._config.filter_no_signal and not any(np.any(advantages) for advantages in given.advantages):
            return Filtered("no_signal", _REMEDY)
        return msgspec.structs.replace(group, advantages=given.advantages, returns=given.returns, live=tuple(live.tolist()))
