"""Loggers: what else than the run's own files is told its metrics. Each brings a package that is an extra of headrace."""
