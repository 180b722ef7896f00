"""Environments: what answers a turn of the model and knows when an episode is over."""
