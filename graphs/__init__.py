"""Ready graphs and the command line."""
