"""Batches: segments packed into rows, rows cut into micro-batches."""
