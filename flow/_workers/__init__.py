"""The asyncio shell around the core: what each kind of node's workers do. One file a kind, over the same ``Hands``."""
