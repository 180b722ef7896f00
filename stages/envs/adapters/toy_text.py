"""Gymnasium's toy text environments in words: names of the actions, and what an observation says.

Used by ``gymnasium_env.py`` where nothing else is asked for; other environments are described by their spaces alone.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

Describe = Callable[[Any, Any], str]
"""An environment (without wrappers) and an observation -> text for the model."""


class Words(msgspec.Struct, frozen=True):
    """How to speak of an environment."""

    actions: tuple[str, ...]
    """Name of each action, by number."""
    describe: Describe | None = None
    """``None`` describes by the observation space."""


def frozen_lake(env: Any, observation: int) -> str:
    """The map, row by row, with P where the player is."""
    rows = [[letter.decode() for letter in row] for row in env.desc]
    row, column = divmod(observation, len(rows[0]))
    rows[row][column] = "P"
    return "\n".join("".join(letters) for letters in rows)


def cliff_walking(env: Any, observation: int) -> str:
    """The grid, row by row: P the player, C the cliff, G the goal."""
    height, width = env.shape
    rows = [["." for _ in range(width)] for _ in range(height)]
    rows[-1] = ["."] + ["C"] * (width - 2) + ["G"]
    row, column = divmod(observation, width)
    rows[row][column] = "P"
    return "\n".join("".join(letters) for letters in rows)


def taxi(env: Any, observation: int) -> str:
    """Where the taxi, the passenger and the hotel are."""
    row, column, passenger, destination = (int(part) for part in env.decode(observation))
    places = [f"{name} (row {r}, column {c})" for name, (r, c) in zip("RGYB", env.locs, strict=True)]
    where = "in the taxi" if passenger == len(places) else f"at {places[passenger]}"
    walls = "\n".join("".join(mark.decode() for mark in line) for line in env.desc)
    return f"{walls}\nTaxi at row {row}, column {column}. Passenger {where}. Destination {places[destination]}."


def blackjack(env: Any, observation: tuple[int, int, int]) -> str:
    """The player's sum and the dealer's open card."""
    total, dealer, ace = (int(part) for part in observation)
    usable = ", with an ace that counts 11" if ace else ""
    return f"You have {total}{usable}. The dealer shows {dealer}."


TOY_TEXT: Mapping[str, Words] = {
    "FrozenLake": Words(("left", "down", "right", "up"), frozen_lake),
    "FrozenLake8x8": Words(("left", "down", "right", "up"), frozen_lake),
    "CliffWalking": Words(("up", "right", "down", "left"), cliff_walking),
    "CliffWalkingSlippery": Words(("up", "right", "down", "left"), cliff_walking),
    "Taxi": Words(("south", "north", "east", "west", "pickup", "dropoff"), taxi),
    "Blackjack": Words(("stick", "hit"), blackjack),
    "CartPole": Words(("left", "right")),
}
"""By the name of an environment, its version aside."""
