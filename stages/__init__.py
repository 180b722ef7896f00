"""The RL stage library of headrace: one folder a family; import from the file that owns the name."""
