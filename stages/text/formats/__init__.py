"""The ways models write tool calls, a file each; ``stages/text/calls.py`` chooses among them."""
