"""Checkpoints: parameters and optimizer state on disk."""
