"""Changes that make a training faster, judged by what they do to its held-out score."""
