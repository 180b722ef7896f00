"""The benchmark: experiments that measure a graph on real work, and what is made of their findings."""
