"""Decoders on Flax NNX, and the files they are read from."""
