"""Environments of other packages, one file each. Nothing here is imported unless a file is, and a package only when it is used.

Their common ground: an observation is a bounded user message, the total of an episode's rewards is the part ``reward`` of its
score, an action that is none is answered and counted, and a call of a tool that does not exist is answered under its own id.
"""
