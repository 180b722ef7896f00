"""Advantages: pure functions of the rewards of one group, and their stage."""
