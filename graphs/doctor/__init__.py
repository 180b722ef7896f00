"""What a machine and an installation have, and what of it would stop a run.

Standard library only, so that it works where nothing else can be imported; JAX is looked at in a process of its own.
"""
