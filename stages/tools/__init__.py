"""Functions a model may call, and wrappers that delay or disable them."""
