"""The commands that take more than a few lines. ``graphs.cli`` reads which one is asked for."""
