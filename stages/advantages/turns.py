"""Credit turn by turn: what each turn still earns (``returns.py``), compared within the group. Pure NumPy, by group."""

from collections.abc import Sequence

import numpy as np

from stages.advantages.members import in_units, is_constant, out_of_units, single


def turn_advantages(
    returns: Sequence[np.ndarray], live: np.ndarray, scale: bool = True, magnitude: float = 0.0
) -> tuple[np.ndarray, ...]:
    """Returns of turns minus the mean over the group, over the deviation there.

    Mean and deviation are over all turns of all live members, each member with one vote, shared by its turns: long episodes do
    not outvote short ones. With ``discount=1`` and rewards at the end alone all turns of a member have one return, and this is
    ``group_advantages``. Returns that are one up to the rounding of float32 carry no signal: all zeros. A single live member
    gets zeros too: its own turns are no siblings.

    Args:
        returns: float [turns of the member] for each member; those of members that are not live are ignored and may be NaN.
        live: bool [n]: members that take part, each with a turn or more.
        scale: divide by the deviation.
        magnitude: see ``is_constant``.

    Returns:
        float32 [turns of the member] for each member; 0 where not live.

    Raises:
        ValueError: numbers of members differ, a live member has no turn or one whose return is not finite, or float32 does not
            hold an advantage.

    Source: Feng et al. 2025, "Group-in-Group Policy Optimization" (arXiv 2505.10978), equation of the discounted return of a
        step; Zeng et al. 2025, "Reinforcing Multi-Turn Reasoning in LLM Agents via Turn-Level Credit Assignment" (arXiv
        2505.11821), advantages of turns within a group.
        We differ: GiGPO compares steps taken from the same state, which is rarely met twice in text, and MT-GRPO turns of the
        same number, which leaves the last turns of the longest episode without siblings; here all turns of a group are.
        Outcome and turn rewards are one return, not two advantages that are added.
    """
    live = np.asarray(live, bool)
    if len(returns) != len(live):
        raise ValueError(
            f"turn_advantages: expected returns of {len(live)} members, got {len(returns)}; call it once for each group"
        )
    chosen = [np.asarray(member, np.float64) for member, alive in zip(returns, live, strict=True) if alive]
    if not all(member.size and np.isfinite(member).all() for member in chosen):
        raise ValueError(
            f"turn_advantages: expected finite returns of each live member, got {[member.tolist() for member in chosen]}; "
            "a member without a turn or a reward is not live"
        )
    zeros = tuple(np.zeros(len(member), np.float32) for member in returns)
    if len(chosen) < 2 or is_constant(np.concatenate(chosen), magnitude):
        return zeros
    units, exponent = in_units(np.concatenate(chosen))
    chosen = np.split(units, np.cumsum([member.size for member in chosen])[:-1])
    mean = np.mean([member.mean() for member in chosen])
    deviation = np.sqrt(np.mean([((member - mean) ** 2).mean() for member in chosen]))
    better = [(member - mean) / deviation if scale else out_of_units(member - mean, exponent) for member in chosen]
    places = {int(member): place for place, member in enumerate(np.flatnonzero(live))}
    return tuple(
        single(better[places[member]], f"turn_advantages, member {member}", "turn") if member in places else nothing
        for member, nothing in enumerate(zeros)
    )
