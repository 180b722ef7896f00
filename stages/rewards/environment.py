"""The reward that the environment itself gave: the part ``reward`` of its score. A pure function of one episode."""

from stages.records import Episode

PART = "reward"


def environment_reward(episode: Episode) -> float:
    """What the environment scored under ``reward``; an episode that was cut short has it too.

    Raises:
        ValueError: the environment scores no such part.
    """
    if PART not in episode.parts:
        raise ValueError(
            f"task {episode.task.id!r}: expected an environment that scores the part {PART!r}, got the parts "
            f"{sorted(episode.parts)} (reward environment_reward); reward what it does score, or give it a scorer"
        )
    return episode.parts[PART]
