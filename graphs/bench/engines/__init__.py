"""Policy engines beside one another: the same seed, prompts and weights for all, and what each makes of them."""
