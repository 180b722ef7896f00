"""The study ``staleness``: what a bound on the lag buys and costs, with each correction; and how old a pipeline gets."""
