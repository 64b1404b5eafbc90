"""Watching a crawl: what is counted, and what is wrong with it."""
