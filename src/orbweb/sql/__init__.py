"""SQL databases: what all that read and write them share."""
