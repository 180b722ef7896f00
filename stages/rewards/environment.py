"""The rewards that the environment itself gave: for the episode, and turn by turn. Pure functions of one episode."""

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


def turn_rewards(episode: Episode) -> tuple[float, ...]:
    """What the environment gave for each turn; 0 where it gave nothing, as for a turn that was cut before it was asked.

    Raises:
        ValueError: it was asked, and rewards no turns at all.
    """
    answered = [turn for turn in episode.turns if turn.tool_s is not None]
    if answered and all(turn.reward is None for turn in answered):
        raise ValueError(
            f"task {episode.task.id!r}: expected an environment that rewards turns, got no reward for any of {len(answered)} "
            "(reward turn_rewards); answer turns with a Reply that has a reward, or reward the whole episode"
        )
    return tuple(turn.reward or 0.0 for turn in episode.turns)
