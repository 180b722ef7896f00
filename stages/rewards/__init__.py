"""Rewards: pure functions of an episode, and the stage that scores groups with them."""
