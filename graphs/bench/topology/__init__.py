"""The experiment ``topology``: trainer, engine and reference on the same devices, on two meshes, on three."""
