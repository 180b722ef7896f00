"""Batches: what of a group is trained, as segments, and segments laid into rows of a few static shapes."""
