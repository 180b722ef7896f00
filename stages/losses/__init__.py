"""Losses: pure JAX functions, summed over target tokens."""
