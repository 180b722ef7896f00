"""The correctness baseline: a small training beside a record of it that is committed."""
