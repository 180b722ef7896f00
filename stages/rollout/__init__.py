"""Sampling from a model: continuous batching over a fixed number of slots."""
