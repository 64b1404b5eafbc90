"""Where items go: the base class of all pipelines, the buffer before them, and those built in."""
