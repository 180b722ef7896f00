"""Evaluation during training: a branch of the graph that is pinned to one version of the weights."""
