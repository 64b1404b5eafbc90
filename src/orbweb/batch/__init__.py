"""Batches of a table of tasks: when they begin, who opens and ends them, how far they are."""
