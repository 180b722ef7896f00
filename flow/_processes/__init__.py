"""Stages in processes: ``crew`` is what a node has, ``child`` one process seen from the run, ``worker`` seen from inside."""
