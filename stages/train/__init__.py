"""Training: one optimizer step from streamed micro-batches, and the sink that runs it."""
