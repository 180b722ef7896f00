"""Scoring: what a model says of tokens that were sampled before, a reference, a teacher or a critic."""
